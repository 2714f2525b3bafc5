"""Open files, sockets and threads of processes, from /proc.

A process that exits while it is counted counts as nothing. Source: proc_pid_fd(5),
proc_pid_task(5), proc_pid_limits(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from moorage.engine.cgroups.files import read

_OPEN_FILES = re.compile(r"^Max open files +(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """The counts of all processes together. `open_files_limit` is the first one's soft limit."""

    processes: int = 0
    threads: int = 0
    descriptors: int = 0
    sockets: int = 0
    open_files_limit: int | None = None


def count_processes(pids: Iterable[int]) -> ProcessCounts:
    """Count the resources of processes. Blocks, for some microseconds each descriptor."""
    ordered = sorted(pids)
    counted = ((0, 0, 0), *map(_count, ordered))
    limit = _OPEN_FILES.search(read(f"/proc/{ordered[0]}/limits")) if ordered else None
    threads, descriptors, sockets = (sum(column) for column in zip(*counted, strict=True))
    return ProcessCounts(
        len(ordered), threads, descriptors, sockets, int(limit[1]) if limit else None
    )


def _count(pid: int) -> tuple[int, int, int]:
    directory = f"/proc/{pid}/fd"
    try:
        # A directory's link count is the number of its subdirectories plus two.
        threads = os.stat(f"/proc/{pid}/task").st_nlink - 2
        names = os.listdir(directory)
    except OSError:
        return 0, 0, 0
    return threads, len(names), sum(1 for name in names if _is_socket(f"{directory}/{name}"))


def _is_socket(link: str) -> bool:
    try:
        return os.readlink(link).startswith("socket:")
    except OSError:
        return False
