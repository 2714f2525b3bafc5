"""A process that may be our child or one that an earlier Moorage left: told apart, awaited, ended.

A process id alone is no name, since the kernel gives it out again; with the time the process began
it is one. What becomes of the process is learnt through its pidfd, which works for both kinds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from moorage.linux.child import until_readable

_START_TIME_FIELD = 21


class Identity(msgspec.Struct, frozen=True):
    """A process on this boot: its id, and when it began in ticks since then."""

    pid: int
    began_ticks: int


class Process:
    """A running process. Several tasks may await its end."""

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None = None) -> None:
        """Raises ProcessLookupError when there is no such process."""
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
        """The process of that identity, None when it is no more."""
        try:
            process = cls(identity.pid)
        except ProcessLookupError:
            return None
        # Only after it is held by its pidfd can its id not be given to another.
        if began(identity.pid) != identity.began_ticks or state(identity.pid) == "Z":
            process.close()
            return None
        return process

    @property
    def identity(self) -> Identity:
        """Raises ProcessLookupError when it has ended."""
        ticks = began(self.pid)
        if ticks is None:
            raise ProcessLookupError(self.pid)
        return Identity(self.pid, ticks)

    async def ended(self) -> str:
        """Wait until it has ended; how it did, as far as that can be known."""
        await until_readable(self._pidfd)
        if self._child is None:
            return "ended"
        return _ending(self._child.wait())

    async def stop(self, patience_s: float) -> None:
        """End it with SIGTERM, and with SIGKILL after so many seconds. Returns when it is gone."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self.ended()
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Let go of it, running or not."""
        os.close(self._pidfd)


def began(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None when there is none."""
    fields = _stat(pid)
    return int(fields[_START_TIME_FIELD - 2]) if fields else None


def state(pid: int) -> str:
    """The state letter of a process, empty when there is none."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def parent(pid: int) -> int | None:
    """The parent's id of a process, None when there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold blanks. Source: proc(5)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"
