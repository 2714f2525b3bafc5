"""Open file descriptors of the test process."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> int:
    """Return how many are open.

    Descriptors that an earlier test left to the garbage collector are closed first: the collector
    may otherwise run between two counts.
    """
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
