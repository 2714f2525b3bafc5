"""Cgroup removal with retries: the kernel releases a cgroup only after its last process is gone.

It does so shortly after the last exit, without a notification, so removal is retried. Source:
cgroups(7).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from moorage.linux.cgroup_control import CgroupError, has_cgroup, kill_processes, remove_cgroup
from moorage.linux.cgroups import Cgroups
from moorage.linux.process import Process

RETRY_PAUSE_S = 0.01
_BLOCKING_TRIES = 40


Kill = Callable[[Cgroups, str], tuple[Process, ...]]


@dataclass(frozen=True)
class CgroupCalls:
    """What a removal asks of the kernel, and the pause between two tries."""

    has: Callable[[Cgroups, str], bool] = has_cgroup
    remove: Callable[[Cgroups, str], None] = remove_cgroup
    kill: Kill = kill_processes
    pause_s: float = RETRY_PAUSE_S


_CALLS = CgroupCalls()


class CgroupBusyError(CgroupError):
    """A cgroup is still in use at the deadline; the text says why."""


async def kill_cgroup(
    cgroups: Cgroups, path: str, deadline_s: float, *, kill: Kill = kill_processes
) -> None:
    """Kill the processes in a cgroup and its descendants; returns when they have exited.

    Raises CgroupBusyError if one has not by the deadline: it hangs in the kernel. Raises
    CgroupError.
    """
    await _Removal(cgroups, path, CgroupCalls(kill=kill)).run(deadline_s, removes=False)


async def kill_and_remove_cgroup(
    cgroups: Cgroups, path: str, deadline_s: float, calls: CgroupCalls = _CALLS
) -> None:
    """Kill the processes in a cgroup, then remove it with its descendants; absent is no error.

    Raises CgroupBusyError, CgroupError.
    """
    await _Removal(cgroups, path, calls).run(deadline_s, removes=True)


def kill_and_remove_cgroup_blocking(
    cgroups: Cgroups, path: str, *, kill: Kill = kill_processes, pause_s: float = RETRY_PAUSE_S
) -> None:
    """Kill the processes in a cgroup and remove it, in a thread; gives up after half a second.

    Raises CgroupError.
    """
    for remaining in reversed(range(_BLOCKING_TRIES)):
        for process in kill(cgroups, path):
            process.close()
        try:
            remove_cgroup(cgroups, path)
        except CgroupError:
            if not remaining:
                raise
        else:
            return
        time.sleep(pause_s)


class _Removal:
    def __init__(self, cgroups: Cgroups, path: str, calls: CgroupCalls) -> None:
        self._calls = calls
        self._cgroups = cgroups
        self._path = path
        self._obstacle = "the kernel does not respond"

    async def run(self, deadline_s: float, *, removes: bool) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    await self._kill_all()
                    if not removes or await asyncio.to_thread(self._remove):
                        return
                    await asyncio.sleep(self._calls.pause_s)
        except TimeoutError:
            goal = "removed" if removes else "empty"
            raise CgroupBusyError(
                None, f"cgroup {self._path} is not {goal} after {deadline_s:g} s: {self._obstacle}"
            ) from None

    async def _kill_all(self) -> None:
        while killed := await self._kill():
            pids = ", ".join(str(process.pid) for process in killed)
            self._obstacle = f"SIGKILL did not end the processes {pids}"
            await _wait_exited(killed)

    async def _kill(self) -> tuple[Process, ...]:
        work = asyncio.ensure_future(asyncio.to_thread(self._calls.kill, self._cgroups, self._path))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread goes on; close the processes it returns.
            work.add_done_callback(_close_result)
            raise

    def _remove(self) -> bool:
        """Return whether the cgroup is gone; sets the obstacle otherwise. Blocks."""
        if not self._calls.has(self._cgroups, self._path):
            return True
        try:
            self._calls.remove(self._cgroups, self._path)
        except CgroupError as error:
            self._obstacle = error.strerror or str(error)
            return False
        return True


async def _wait_exited(processes: tuple[Process, ...]) -> None:
    try:
        for process in processes:
            await process.ended()
    finally:
        for process in processes:
            process.close()


def _close_result(work: asyncio.Future[tuple[Process, ...]]) -> None:
    if not work.cancelled() and work.exception() is None:
        for process in work.result():
            process.close()
