"""Keeps the trouble of one pod from the others: what breaks for it is logged, and tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorage.api.logs import Log
from moorage.cri import CriError

log = Log(__name__)


@contextmanager
def apart(what: str, **subject: object) -> Iterator[None]:
    """Log whatever the block raises, with its subject, and go on.

    For loops over pods and containers, whose next round tries again.
    """
    try:
        yield
    except (CriError, OSError) as error:
        log.warning(f"{what} failed", **subject, error=error)
    except Exception:
        # A fault of ours: without this the agent would end, start again, and meet it again.
        log.exception(f"{what} broke", **subject)
