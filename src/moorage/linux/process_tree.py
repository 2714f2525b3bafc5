"""Process lookup by command line and by parent.

For processes whose start was interrupted before their ids were recorded. Reading all of /proc takes
milliseconds, so this is for failures alone. Source: proc(5), /proc/PID/cmdline, task/TID/children.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from moorage.linux.process import Process

_PROC = Path("/proc")


def all_pids() -> list[int]:
    """Return the ids of all processes. Blocks."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]


def arguments(pid: int) -> list[str] | None:
    """Return a process's argv: empty for a zombie or kernel thread, None without the process."""
    try:
        command_line = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return command_line.decode(errors="replace").split("\0")[:-1]


def processes_of(program: Path, words: Collection[str]) -> list[int]:
    """Return the ids of a program's processes that have all of these arguments. Blocks."""
    pids = []
    for pid in all_pids():
        argv = arguments(pid)
        if argv and argv[0] == str(program) and set(words) <= set(argv):
            pids.append(pid)
    return pids


def with_descendants(pid: int) -> Iterator[int]:
    """Yield a process and its descendants. Blocks."""
    # No recursion: a container can create a chain of any length.
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        yield parent
        waiting += reversed(_children(parent))


def held(pids: Collection[int]) -> list[Process]:
    """Open the processes of these ids that exist; the caller closes them."""
    processes = []
    for pid in pids:
        try:
            processes.append(Process(pid))
        except ProcessLookupError:
            continue
    return processes


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in (_PROC / str(pid) / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []
