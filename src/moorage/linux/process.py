"""Process handles, for children and for processes that an earlier Moorage started.

A process id alone is reused by the kernel; with the start time it identifies a process. Its exit is
detected through its pidfd, which works for both.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from moorage.linux.child import until_readable

_START_TIME_FIELD = 21


class Identity(msgspec.Struct, frozen=True):
    """A process on this boot: its id, and its start time in ticks since the boot."""

    pid: int
    began_ticks: int


class Process:
    """A running process. Several tasks may await its exit."""

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None = None) -> None:
        """Open a process. Raises ProcessLookupError."""
        self.pid = pid
        self._child = child
        self._pidfd = os.pidfd_open(pid)

    @classmethod
    def launch(cls, argv: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Self:
        """Start a program in a session of its own, both outputs appended to a file.

        Raises OSError.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        return cls(child.pid, child)

    @classmethod
    def find(cls, identity: Identity) -> Self | None:
        """Open the process of that identity; None if it has exited."""
        try:
            process = cls(identity.pid)
        except ProcessLookupError:
            return None
        # Only while the pidfd is open cannot the id refer to another process.
        if began(identity.pid) != identity.began_ticks or state(identity.pid) == "Z":
            process.close()
            return None
        return process

    @property
    def identity(self) -> Identity:
        """The process's identity. Raises ProcessLookupError when it has exited."""
        ticks = began(self.pid)
        if ticks is None:
            raise ProcessLookupError(self.pid)
        return Identity(self.pid, ticks)

    async def ended(self) -> str:
        """Wait for the exit. Returns its description, "ended" if it is not a child."""
        await until_readable(self._pidfd)
        if self._child is None:
            return "ended"
        return _ending(self._child.wait())

    async def stop(self, patience_s: float) -> None:
        """Send SIGTERM, and SIGKILL after `patience_s`. Returns when the process has exited."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self.ended()
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that has exited is no error."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Close the pidfd; the process is not affected."""
        os.close(self._pidfd)


def began(pid: int) -> int | None:
    """Return a process's start time in ticks since the boot; None without the process."""
    fields = _stat(pid)
    return int(fields[_START_TIME_FIELD - 2]) if fields else None


def state(pid: int) -> str:
    """Return a process's state letter, empty without the process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def parent(pid: int) -> int | None:
    """Return the id of a process's parent, None without the process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def has_terminal(pid: int) -> bool:
    """Return whether a process has a controlling terminal; false without the process."""
    fields = _stat(pid)
    return bool(fields) and fields[4] != "0"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain blanks. Source:
    proc(5).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"


# Process lookup by command line and by parent.
#
# For processes whose start was interrupted before their IDs were recorded. Reading all of /proc
# takes milliseconds, so this is for failures and teardown. Source: proc(5), /proc/PID/cmdline and
# stat.

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


def descendants(
    ancestors: Iterable[int],
    pids: Callable[[], Iterable[int]] = all_pids,
    parent: Callable[[int], int | None] = parent,
) -> list[int]:
    """Return processes and all that they started, directly or not, parents first. Blocks."""
    children: dict[int, list[int]] = {}
    for pid in pids():
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
