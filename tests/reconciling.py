"""A check for tests of reconcile loops: no key's work fails unless the test says so.

Loops try a failed key again, so a test that waits for the end state passes although the first try
failed. With `no_failed_reconciles` in a directory's conftest, such a test fails. A test in which
failures belong to the case has the marker `failing_reconciles`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

_EVENTS = ("reconcile failed", "reconcile broke", "operation broke")


class _Failures(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() in _EVENTS:
            fields = getattr(record, "moorage_fields", {})
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            self.seen.append(f"{record.getMessage()} {fields}\n{trace}")


@pytest.fixture(autouse=True)
def no_failed_reconciles(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which a reconcile failed, though a later one succeeded."""
    handler = _Failures()
    logger = logging.getLogger("moorage")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    if request.node.get_closest_marker("failing_reconciles") is None:
        assert not handler.seen, "\n".join(handler.seen)
