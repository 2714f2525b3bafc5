"""This process: its end with its parent, its CPU time, memory and descriptors. Source: proc(5)."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import msgspec

from moorage.linux import libc

# Parent death signal: a process that ends with the one that started it. Source: prctl(2).


def die_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent ends, however that happens.

    Raises OSError where the kernel refuses.
    """
    parent = os.getppid()
    libc.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent:
        # The parent ended before the kernel knew of the request.
        os.kill(os.getpid(), signal.SIGTERM)


_SELF = Path("/proc/self")
_STARTED, _VIRTUAL, _RESIDENT = 21, 22, 23
"""Fields of /proc/PID/stat, counted from 0."""


class OwnUsage(msgspec.Struct, frozen=True):
    """What this process uses; `started_s` is in seconds since 1970."""

    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    most_files: int
    started_s: float


def own_usage() -> OwnUsage:
    """Return the usage of this process."""
    # The second field, the name, may have blanks and parentheses.
    fields = ["", "", *(_SELF / "stat").read_text().rpartition(")")[2].split()]
    times = os.times()
    return OwnUsage(
        cpu_s=times.user + times.system,
        resident_bytes=int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[_VIRTUAL]),
        open_files=len(os.listdir(_SELF / "fd")),
        most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started_s=_booted_s() + int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK"),
    )


def _booted_s() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
