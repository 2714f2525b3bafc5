"""Memory of a process. Source: proc(5), /proc/PID/statm and smaps_rollup."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from moorage.linux.capabilities import SYS_RESOURCE

# OOM score: which processes the kernel kills first. Source: proc(5), oom_score_adj.

LOWEST_OOM_SCORE = -1000

_OWN_SCORE = Path("/proc/self/oom_score_adj")


def own_oom_score(file: Path = _OWN_SCORE) -> str:
    """Return this process's oom_score_adj, "" if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def oom_score_floor(own: Iterable[str], own_score: str) -> int:
    """Return the lowest oom_score_adj this process may set: its own, unless it may lower it.

    `own` are its capabilities.
    """
    if SYS_RESOURCE in own or not own_score:
        return LOWEST_OOM_SCORE
    return int(own_score)


def resident_bytes(pid: int) -> int | None:
    """Return the resident set of a process in bytes, None if there is none."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(pid: int) -> int | None:
    """Return the proportional set size of a process in bytes, None if there is none.

    Each page counts divided by the processes that share it. Where it cannot be read, as of another
    user's process, the resident set is returned.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        return resident_bytes(pid)
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
