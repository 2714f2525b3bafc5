"""Processes found by what they are: by their command line, by who started them.

For what was cut short before it had written down its own id. Looking through all processes takes
milliseconds, so this is for failures alone. Source: proc(5), /proc/PID/cmdline, task/TID/children.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from moorage.linux.process import Process

_PROC = Path("/proc")


def processes_of(program: Path, words: Collection[str]) -> list[int]:
    """The ids of the processes of a program that have all of these arguments. Blocks."""
    found = []
    for directory in _PROC.iterdir():
        if not directory.name.isdecimal():
            continue
        argv = _argv(directory)
        if argv and argv[0] == str(program) and set(words) <= set(argv):
            found.append(int(directory.name))
    return found


def with_descendants(pid: int) -> Iterator[int]:
    """A process and all it started, directly or not, as far as they are still its own. Blocks."""
    # No recursion: a container can make a chain of any length.
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        yield parent
        waiting += reversed(_children(parent))


def held(pids: Collection[int]) -> list[Process]:
    """The processes of these ids that there are; each must be closed."""
    found = []
    for pid in pids:
        try:
            found.append(Process(pid))
        except ProcessLookupError:
            continue
    return found


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in (_PROC / str(pid) / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _argv(directory: Path) -> list[str]:
    try:
        return (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []
