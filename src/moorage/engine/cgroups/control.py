"""Cgroup control: create, kill and remove the cgroups of sandboxes, off the event loop.

A kubelet creates a pod's cgroup, and a runtime creates and removes a container's. This module does
the rest: parents that no client created, and cgroups that an interrupted runtime left.
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
    """The host's cgroups by their paths in the hierarchies. Safe for concurrent use.

    Every method raises FailedError with the kernel's message, ValueError for an invalid path.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._reader = UsageReader(cgroups)

    async def create_parent(self, driver: CgroupDriver, path: str) -> tuple[str, ...]:
        """Create a pod's cgroup and its parents, where missing.

        Returns the created ones, outermost first, for `remove_if_empty` when the pod is removed.
        Creates none with the systemd driver: systemd creates slices for the scopes in them.
        """
        if driver is CgroupDriver.SYSTEMD:
            return ()
        return await self._change(make_cgroup, path)

    async def missing(self, driver: CgroupDriver, path: str) -> tuple[str, ...]:
        """Return the cgroups that `create_parent` would create, outermost first."""
        if driver is CgroupDriver.SYSTEMD:
            return ()
        parents = [str(parent) for parent in PurePosixPath(path).parents][-2::-1]
        return await asyncio.to_thread(self._missing, (*parents, path))

    async def processes(self, path: str) -> frozenset[int]:
        """Return the ids of the processes in a cgroup and its descendants."""
        return await self._change(process_ids, path)

    async def kill(self, path: str, deadline_s: float) -> None:
        """Kill the processes in a cgroup and its descendants; blocks until they have exited.

        Raises TimeLimitError if one has not by the deadline: it hangs in the kernel.
        """
        await self._kill_until_empty(path, deadline_s, is_removed=False)

    async def remove(self, path: str, deadline_s: float) -> None:
        """Kill the processes in a cgroup, then remove it with its descendants; absent is no error.

        Raises TimeLimitError as `kill` does.
        """
        await self._kill_until_empty(path, deadline_s, is_removed=True)

    async def remove_if_empty(self, paths: tuple[str, ...]) -> None:
        """Remove those of the cgroups, as `create_parent` returned them, that are empty."""
        for path in reversed(paths):
            await self._change(remove_if_empty, path)

    def remove_if_empty_now(self, path: str) -> None:
        """Remove one cgroup if it is empty, without yielding to the event loop.

        For a cgroup in which another task may create one. Takes one quick call a hierarchy.
        """
        try:
            remove_if_empty(self._cgroups, path)
        except CgroupError as error:
            raise FailedError(error.strerror) from error

    async def oom_kills(self, path: str) -> int | None:
        """Return how many processes the kernel killed for memory in a cgroup and its descendants.

        None when the cgroup is gone or the kernel does not count them. After a container's exit,
        call it before the runtime removes the cgroup.
        """
        return await asyncio.to_thread(self._reader.oom_kills, path)

    async def _kill_until_empty(self, path: str, deadline_s: float, *, is_removed: bool) -> None:
        goal = "removed" if is_removed else "empty"
        obstacle = "the kernel does not answer"
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    while held := await self._kill(path):
                        pids = ", ".join(str(process.pid) for process in held)
                        obstacle = f"SIGKILL does not end the processes {pids}"
                        await _wait_exited(held)
                    if not is_removed:
                        return
                    obstacle = await asyncio.to_thread(self._remove, path)
                    if not obstacle:
                        return
                    # The kernel releases it shortly after the last exit, without a notification.
                    await asyncio.sleep(_REMOVE_PAUSE_S)
        except TimeoutError:
            raise TimeLimitError(
                f"cgroup {path} is not {goal} after {deadline_s:g} s: {obstacle}"
            ) from None

    def _missing(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for path in paths if not has_cgroup(self._cgroups, path))

    async def _kill(self, path: str) -> tuple[Process, ...]:
        work = asyncio.ensure_future(self._change(kill_processes, path))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread goes on; close the processes it returns.
            work.add_done_callback(_close_result)
            raise

    def _remove(self, path: str) -> str:
        """Return why the cgroup could not be removed, empty when it is gone."""
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


async def _wait_exited(held: tuple[Process, ...]) -> None:
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
