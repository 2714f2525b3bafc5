"""Failure isolation: what fails for one pod is logged and retried, without harm to others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorage.api.logs import Log
from moorage.wire.cri import CriError

log = Log(__name__)


@contextmanager
def log_failure(what: str, **subject: object) -> Iterator[None]:
    """Log an exception from the block, with its subject, and continue.

    For loops over pods and containers that retry in their next round.
    """
    try:
        yield
    except (CriError, OSError) as error:
        log.warning(f"{what} failed", **subject, error=error)
    except Exception:
        # A bug in the agent: if raised, the agent would restart and fail again.
        log.exception(f"{what} broke", **subject)
