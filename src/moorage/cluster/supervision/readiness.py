"""Readiness of a part, reported to the process that started it."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from moorage.api.logs import Log
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE

log = Log(__name__)


def notify_ready(environment: MutableMapping[str, str] = os.environ) -> None:
    """Report to the process that started this one that it is ready.

    Does nothing without such a process, or if that has stopped waiting. `environment` names it.
    """
    descriptor = environment.pop(NOTIFY_VARIABLE, None)
    if descriptor is None:
        return
    try:
        os.write(int(descriptor), READY_MESSAGE)
    except BrokenPipeError:
        log.info("the starting process exited before this one was ready")
    finally:
        os.close(int(descriptor))
