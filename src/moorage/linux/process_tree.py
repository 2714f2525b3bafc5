"""Process lookup by command line and by parent.

For processes whose start was interrupted before their IDs were recorded. Reading all of /proc takes
milliseconds, so this is for failures and teardown. Source: proc(5), /proc/PID/cmdline and stat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from moorage.linux.process import Process, parent

_PROC = Path("/proc")


def all_pids() -> list[int]:
    """Return the IDs of all processes."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]


def arguments(pid: int) -> list[str] | None:
    """Return a process's argv: empty for a zombie or kernel thread, None without the process."""
    try:
        command_line = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return command_line.decode(errors="replace").split("\0")[:-1]


def processes_of(program: Path, words: Collection[str]) -> list[int]:
    """Return the IDs of the processes of a program that have all of these arguments. Blocks."""
    pids = []
    for pid in all_pids():
        argv = arguments(pid)
        if argv and argv[0] == str(program) and set(words) <= set(argv):
            pids.append(pid)
    return pids


def descendants(ancestors: Iterable[int]) -> list[int]:
    """Return processes and all that they started, directly or not, parents first. Blocks."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        above = parent(pid)
        if above is not None:
            children.setdefault(above, []).append(pid)
    # Ordered and without recursion: a container can make a chain of any length.
    descendants = dict.fromkeys(ancestors)
    waiting = list(descendants)
    for pid in waiting:
        new = [child for child in children.get(pid, ()) if child not in descendants]
        descendants.update(dict.fromkeys(new))
        waiting += new
    return waiting


def held(pids: Collection[int]) -> list[Process]:
    """Return the processes of these IDs that exist; each must be closed."""
    processes = []
    for pid in pids:
        try:
            processes.append(Process(pid))
        except ProcessLookupError:
            continue
    return processes
