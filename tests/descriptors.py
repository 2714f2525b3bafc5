"""Open file descriptors of the test process."""

from __future__ import annotations

import gc
import os
from contextlib import suppress


def open_descriptors() -> int:
    """Return how many are open.

    Descriptors that an earlier test left to the garbage collector are closed first: the collector
    may otherwise run between two counts.
    """
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def descriptors() -> dict[int, str]:
    """Return the open descriptors, and what each of them is of. Source: proc_pid_fd(5)."""
    gc.collect()
    opened = {}
    for name in os.listdir("/proc/self/fd"):
        # The one of the listing itself has gone since.
        with suppress(FileNotFoundError):
            opened[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return opened


def opened_since(before: dict[int, str]) -> dict[int, str]:
    """Return the descriptors that were opened since, and what each of them is of."""
    return {number: of for number, of in descriptors().items() if before.get(number) != of}
