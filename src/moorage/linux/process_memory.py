"""Memory of a process. Source: proc(5), /proc/PID/statm and smaps_rollup."""

from __future__ import annotations

import os
from pathlib import Path


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
