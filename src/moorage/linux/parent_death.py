"""Parent death signal: a process that ends with the one that started it. Source: prctl(2)."""

from __future__ import annotations

import os
import signal

from moorage.linux import libc


def die_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent ends, however that happens.

    Raises OSError where the kernel refuses.
    """
    parent = os.getppid()
    libc.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent:
        # The parent ended before the kernel knew of the request.
        os.kill(os.getpid(), signal.SIGTERM)
