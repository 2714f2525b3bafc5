"""Cgroup control: create, kill and remove the cgroups of sandboxes, off the event loop.

A kubelet creates a pod's cgroup, and a runtime creates and removes a container's. This module does
the rest: parents that no client created, and cgroups that an interrupted runtime left.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from moorage.engine.cgroups.usage import UsageReader
from moorage.engine.errors import FailedError, InvalidError, TimeLimitError
from moorage.engine.handlers.definition import CgroupDriver
from moorage.linux.cgroup_control import (
    CgroupError,
    has_cgroup,
    make_cgroup,
    process_ids,
    remove_if_empty,
)
from moorage.linux.cgroup_removal import CgroupBusyError, kill_and_remove_cgroup, kill_cgroup
from moorage.linux.cgroups import Cgroups

# Cgroup paths of containers and pods, and their form in the OCI spec.
#
# Pure. The cgroupfs driver names the directory; with systemd a runtime gets a slice, a prefix and
# an id, and systemd creates a directory for each part of the slice's name. Source: OCI runtime
# spec "Cgroups Path"; systemd.slice(5); KEP-2033 for slices of pods.

SCOPE_PREFIX = "cri-moorage"
# For containers of sandboxes without a `cgroup_parent`, as from crictl without a kubelet.
DEFAULT_PARENT = "/moorage"
DEFAULT_SLICE = "system.slice"
_SLICE = ".slice"
_SLICE_NAME = re.compile(r"[A-Za-z0-9:_.\\]+(?:-[A-Za-z0-9:_.\\]+)*\.slice")


@dataclass(frozen=True, slots=True)
class CgroupPath:
    """A container's cgroup.

    `path` and `parent` are the container's and the pod's in each hierarchy, absolute without the
    mount point; `oci` is `linux.cgroupsPath`. `is_parent_shared` is set when no parent was named,
    so that the parent is not the pod's own.
    """

    path: str
    parent: str
    oci: str
    is_parent_shared: bool = False


def container_cgroup(driver: CgroupDriver, parent: str, container_id: str) -> CgroupPath:
    """Return the cgroup of a container or infra task under the sandbox's `cgroup_parent`.

    Raises InvalidError for a parent that the driver cannot use.
    """
    above = parent_cgroup(driver, parent)
    if driver is CgroupDriver.CGROUPFS:
        path = f"{above.rstrip('/')}/{container_id}"
        return CgroupPath(path, above, path, is_parent_shared=not parent)
    return CgroupPath(
        f"{above}/{SCOPE_PREFIX}-{container_id}.scope",
        above,
        f"{PurePosixPath(above).name}:{SCOPE_PREFIX}:{container_id}",
        is_parent_shared=not parent,
    )


def parent_cgroup(driver: CgroupDriver, parent: str) -> str:
    """Return a sandbox's `cgroup_parent` as a path in each hierarchy.

    Raises InvalidError when it is not below the root.
    """
    if driver is CgroupDriver.SYSTEMD:
        return slice_path(PurePosixPath(parent or DEFAULT_SLICE).name)
    # A path that begins with exactly two slashes would keep them.
    names = PurePosixPath("/", (parent or DEFAULT_PARENT).lstrip("/")).parts
    if ".." in names or len(names) < 2 or "\0" in parent:
        raise InvalidError(
            f"cgroup parent {parent!r} is not a cgroup path below the root; use a path such as "
            "/pods/a"
        )
    return str(PurePosixPath(*names))


def slice_path(name: str) -> str:
    """Return a slice's directory: `a-b.slice` is `/a.slice/a-b.slice`. Raises InvalidError."""
    if not _SLICE_NAME.fullmatch(name):
        raise InvalidError(
            f"cgroup parent {name!r} is not a systemd slice; use a name such as pods-a.slice, or "
            "set the cgroupfs driver on the handler and the kubelet"
        )
    parts = name.removesuffix(_SLICE).split("-")
    slices = ("-".join(parts[:count]) + _SLICE for count in range(1, len(parts) + 1))
    return "/" + "/".join(slices)


Answer = TypeVar("Answer")


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

    async def exists(self, path: str) -> bool:
        """Return whether a cgroup exists in any hierarchy."""
        return await self._change(has_cgroup, path)

    async def processes(self, path: str) -> frozenset[int]:
        """Return the ids of the processes in a cgroup and its descendants."""
        return await self._change(process_ids, path)

    async def kill(self, path: str, deadline_s: float) -> None:
        """Kill the processes in a cgroup and its descendants; blocks until they have exited.

        Raises TimeLimitError if one has not by the deadline: it hangs in the kernel.
        """
        await _translated(kill_cgroup(self._cgroups, path, deadline_s))

    async def remove(self, path: str, deadline_s: float) -> None:
        """Kill the processes in a cgroup, then remove it with its descendants; absent is no error.

        Raises TimeLimitError as `kill` does.
        """
        await _translated(kill_and_remove_cgroup(self._cgroups, path, deadline_s))

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

    async def lasting_oom_kills(self, path: str) -> int | None:
        """Return `oom_kills` with those of descendants that were removed.

        None where the kernel keeps none of these, as with version 1.
        """
        return await asyncio.to_thread(self._reader.lasting_oom_kills, path)

    def _missing(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for path in paths if not has_cgroup(self._cgroups, path))

    async def _change(self, call: Callable[[Cgroups, str], Answer], path: str) -> Answer:
        return await _translated(asyncio.to_thread(call, self._cgroups, path))


async def _translated(call: Awaitable[Answer]) -> Answer:
    """Await a call to the kernel. Raises TimeLimitError for a busy cgroup, FailedError."""
    try:
        return await call
    except CgroupBusyError as error:
        raise TimeLimitError(error.strerror) from error
    except CgroupError as error:
        raise FailedError(error.strerror) from error
