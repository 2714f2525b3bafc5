"""Memory of a process. Source: proc(5), /proc/PID/statm."""

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
