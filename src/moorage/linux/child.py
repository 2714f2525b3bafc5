"""A program started by this process: quickly, and awaited without a thread of its own.

Its end is learnt through a pidfd, on the event loop. A `Reaper` in the same process may take its
status first, and hands it over. Source: pidfd_open(2), waitid(2).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

# Runtimes and plugins make files for others, containers among them, whatever this process does.
_UMASK = 0o022


class Child:
    """A running program of ours. `wait` may be called by several tasks."""

    # The kernel has one table of children for each process, so this is one for each process too.
    awaited: ClassVar[dict[int, Child]] = {}
    """Those whose status has not been taken, by process id."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
        passing: Sequence[int] = (),
        directory: Path | None = None,
        is_apart: bool = False,
    ) -> None:
        """Start it. `passing` are descriptors it inherits under their numbers; with `is_apart` it
        gets a session of its own, so that `end` ends what it started too. Raises OSError.
        """
        self._process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            pass_fds=passing,
            cwd=directory,
            start_new_session=is_apart,
            umask=_UMASK,
        )
        self.pid = self._process.pid
        self._is_apart = is_apart
        # Nothing else runs on the loop between the start and this line.
        self.awaited[self.pid] = self
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._process.kill()
            self.hand_over(self._process.wait())
            raise

    @property
    def has_ended(self) -> bool:
        self._take_status()
        return self._process.returncode is not None

    def hand_over(self, status: int) -> None:
        """Say how it ended, by whoever took its status: negative for a signal."""
        self._process.returncode = status
        self.awaited.pop(self.pid, None)

    async def wait(self) -> int:
        """Its exit status, negative for a signal."""
        while not self.has_ended:
            await until_readable(self._pidfd)
        status: int = self._process.returncode
        return status

    async def end(self) -> int:
        """Kill it if it still runs; its exit status."""
        # Until its status is taken, its id is given to no other process.
        if not self.has_ended:
            if self._is_apart:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
        return await self.wait()

    def _take_status(self) -> None:
        if self._process.returncode is not None:
            return
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG)
        if ended is not None:
            self.hand_over(exit_status(ended))

    def close(self) -> None:
        """Let go of it; for a program that has ended."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def exit_status(ended: os.waitid_result) -> int:
    """The status of a process that has ended, negative for a signal."""
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


async def until_readable(descriptor: int) -> None:
    """Return when a descriptor can be read from: for a pidfd, when its process has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    # Two tasks may await one process, and a loop takes one reader for each descriptor.
    own = os.dup(descriptor)
    loop.add_reader(own, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(own)
        os.close(own)
