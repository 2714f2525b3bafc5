"""Making, emptying and removing the cgroups of sandboxes and containers, off the event loop.

A kubelet makes a pod's cgroup and a runtime makes and removes the container's. What is left is
here: the parent when nobody made one, and whatever a runtime, killed half way, left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TypeVar

from moorage.engine.cgroups.usage import UsageReader
from moorage.engine.errors import FailedError, TimeLimitError
from moorage.handlers.definition import CgroupDriver
from moorage.linux.cgroup_life import (
    CgroupError,
    has_cgroup,
    kill_processes,
    make_cgroup,
    process_ids,
    remove_cgroup,
    remove_if_empty,
)
from moorage.linux.cgroups import Cgroups
from moorage.linux.process import Process

Answer = TypeVar("Answer")

_REMOVE_PAUSE_S = 0.01


class ContainerCgroups:
    """The cgroups of this machine, by their paths in the hierarchies. Safe for many tasks.

    Everything raises FailedError with the kernel's words, and ValueError for a path of no cgroup.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._reader = UsageReader(cgroups)

    async def make_parent(self, driver: CgroupDriver, path: str) -> tuple[str, ...]:
        """Make a pod's cgroup where it is missing; the cgroups made, outermost first.

        Those are for `remove_if_empty` when the pod goes; one that was there is its maker's.
        systemd makes slices itself, for the scopes in them, so it is left to.
        """
        if driver is CgroupDriver.SYSTEMD:
            return ()
        return await self._change(make_cgroup, path)

    async def missing(self, driver: CgroupDriver, path: str) -> tuple[str, ...]:
        """Which cgroups `make_parent` would make, outermost first."""
        if driver is CgroupDriver.SYSTEMD:
            return ()
        above = [str(each) for each in PurePosixPath(path).parents][-2::-1]
        return await asyncio.to_thread(self._missing, (*above, path))

    async def processes(self, path: str) -> frozenset[int]:
        """The ids of the processes in a cgroup and below."""
        return await self._change(process_ids, path)

    async def kill(self, path: str, deadline_s: float) -> None:
        """Kill everything in a cgroup and below; returns when all of it has ended.

        Raises TimeLimitError when something has not by the deadline: it hangs in the kernel.
        """
        await self._end(path, deadline_s, is_removed=False)

    async def remove(self, path: str, deadline_s: float) -> None:
        """Kill what is in a cgroup, then remove it with all below; nothing when there is none.

        Raises TimeLimitError as `kill` does.
        """
        await self._end(path, deadline_s, is_removed=True)

    async def remove_if_empty(self, paths: tuple[str, ...]) -> None:
        """Remove the cgroups that nothing is in any more, from `make_parent`'s answer."""
        for path in reversed(paths):
            await self._change(remove_if_empty, path)

    def remove_if_empty_at_once(self, path: str) -> None:
        """As `remove_if_empty`, of one cgroup and before anything else happens on the loop.

        For a cgroup in which somebody may want to make another. It is one quick call a hierarchy.
        """
        try:
            remove_if_empty(self._cgroups, path)
        except CgroupError as error:
            raise FailedError(error.strerror) from error

    async def oom_kills(self, path: str) -> int | None:
        """How many processes the kernel killed for memory in a cgroup and below.

        None when the cgroup has gone or nobody counts. For a container that ended: ask before its
        runtime removes it.
        """
        return await asyncio.to_thread(self._reader.oom_kills, path)

    async def _end(self, path: str, deadline_s: float, *, is_removed: bool) -> None:
        hindrance = "the kernel does not answer"
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    while held := await self._kill(path):
                        pids = ", ".join(str(process.pid) for process in held)
                        hindrance = f"SIGKILL does not end the processes {pids}"
                        await _all_ended(held)
                    if not is_removed:
                        return
                    hindrance = await asyncio.to_thread(self._remove, path)
                    if not hindrance:
                        return
                    # The kernel lets go of it a moment after its last process, and tells nobody.
                    await asyncio.sleep(_REMOVE_PAUSE_S)
        except TimeoutError:
            raise TimeLimitError(
                f"cgroup {path} is not at its end after {deadline_s:g} s: {hindrance}"
            ) from None

    def _missing(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in paths if not has_cgroup(self._cgroups, each))

    async def _kill(self, path: str) -> tuple[Process, ...]:
        work = asyncio.ensure_future(self._change(kill_processes, path))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread goes on, and what it will hand over would be lost.
            work.add_done_callback(_close_result)
            raise

    def _remove(self, path: str) -> str:
        """What hinders the removal, nothing when it is done."""
        try:
            remove_cgroup(self._cgroups, path)
        except CgroupError as error:
            return error.strerror or str(error)
        return ""

    async def _change(self, call: Callable[[Cgroups, str], Answer], path: str) -> Answer:
        try:
            return await asyncio.to_thread(call, self._cgroups, path)
        except CgroupError as error:
            raise FailedError(error.strerror) from error


async def _all_ended(held: tuple[Process, ...]) -> None:
    try:
        for process in held:
            await process.ended()
    finally:
        for process in held:
            process.close()


def _close_result(work: asyncio.Future[tuple[Process, ...]]) -> None:
    if not work.cancelled() and work.exception() is None:
        for process in work.result():
            process.close()
