"""What a part says to its supervisor, and what it asks of the kernel."""

from __future__ import annotations

import os
import signal

from moorage.api.logs import Log
from moorage.cluster.supervisor import NOTIFY_VARIABLE, READY_MESSAGE
from moorage.linux import libc

log = Log(__name__)


def notify_ready() -> None:
    """Report to the process that started this one that it does its work now.

    Without such a process, or when it has stopped waiting, nothing happens.
    """
    descriptor = os.environ.pop(NOTIFY_VARIABLE, None)
    if descriptor is None:
        return
    try:
        os.write(int(descriptor), READY_MESSAGE)
    except BrokenPipeError:
        log.info("the starting process has gone before this one was ready")
    finally:
        os.close(int(descriptor))


def die_with_parent() -> None:
    """Have the kernel end this process when its supervisor is gone, however that happened.

    Raises OSError where the kernel refuses.
    """
    parent = os.getppid()
    libc.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent:
        # The supervisor died before the kernel was told.
        os.kill(os.getpid(), signal.SIGTERM)
