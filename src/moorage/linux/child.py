"""Child process: started with little overhead, and awaited on the event loop without a thread.

Its exit is detected through a pidfd. A `Reaper` in the same process may collect the status first,
and passes it on. Source: pidfd_open(2), waitid(2).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

# Runtimes and plugins create files that containers read, whatever this process's umask.
_UMASK = 0o022


class Child:
    """A child process. Several tasks may await it."""

    # The kernel has one table of children for each process, hence a class variable.
    awaited: ClassVar[dict[int, Child]] = {}
    """Children whose status has not been collected, by process id."""

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
        """Start the program. `passing` are descriptors it inherits under their numbers; with
        `is_apart` it gets a session of its own, so that `end` kills its descendants too. Raises
        OSError.
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
        # No await between the start and this line.
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
        """Set the exit status that another has collected: negative for a signal."""
        self._process.returncode = status
        self.awaited.pop(self.pid, None)

    async def wait(self) -> int:
        """Wait for the exit. Returns the status, negative for a signal."""
        while not self.has_ended:
            await until_readable(self._pidfd)
        status: int = self._process.returncode
        return status

    async def end(self) -> int:
        """Kill it if it runs. Returns the exit status."""
        # Its id is not reused until its status is collected.
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
        """Close the pidfd of an exited child."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def exit_status(ended: os.waitid_result) -> int:
    """Return the exit status in a waitid result, negative for a signal."""
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


async def until_readable(descriptor: int) -> None:
    """Block until a descriptor is readable: for a pidfd, until its process has exited."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    # Several tasks may await one process, but a loop has one reader for each descriptor.
    own = os.dup(descriptor)
    loop.add_reader(own, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(own)
        os.close(own)
