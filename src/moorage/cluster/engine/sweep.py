"""Sweep: removal of what a cluster's engine left on the host, without the engine.

For an engine that was killed, or that cannot run any more. The cluster's own state is recognised by
path: monitors, shims and runtimes by a directory among their arguments, mounts and network
namespaces by the directory they are in, cgroups by the bundles that name them. Nothing is matched
by a program's name, so other engines on the host are not affected.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath

from moorage.api.logs import Log
from moorage.cluster.engine.paths import ClusterEnginePaths
from moorage.cluster.errors import LeftoverError
from moorage.cluster.host import Cgroups
from moorage.linux.mounts import current_mounts, isolate, isolate_below, mounts_below, unmount
from moorage.linux.process import (
    Process,
    all_pids,
    arguments,
    descendants,
    has_terminal,
    held,
    parent,
)
from moorage.linux.trees import remove_directories, remove_tree

_END_DEADLINE_S = 10.0

log = Log(__name__)


async def end_processes(paths: ClusterEnginePaths) -> None:
    """Kill the descendants of the engine's monitors and shims, then these; wait for their end.

    Raises LeftoverError if a process does not end within 10 s.
    """
    monitors = with_argument_below(paths.engine.run)
    # In this order, since a monitor reaps its container's processes at once; init may be slow.
    await end(held([pid for pid in descendants(monitors) if pid not in monitors]))
    await end(held(monitors))


async def end(processes: Collection[Process], within_s: float = _END_DEADLINE_S) -> None:
    """Kill processes, wait for their end and close them. Raises LeftoverError."""
    try:
        for process in processes:
            process.send(signal.SIGKILL)
        async with asyncio.timeout(within_s):
            for process in processes:
                await process.ended()
    except TimeoutError:
        stuck = ", ".join(str(process.pid) for process in processes)
        raise LeftoverError(f"some of the processes {stuck} do not exit") from None
    finally:
        for process in processes:
            process.close()


def task_ids(paths: ClusterEnginePaths) -> tuple[str, ...]:
    """Return the IDs of the sandboxes and containers that have a bundle."""
    bundles = paths.engine.bundles
    if not bundles.is_dir():
        return ()
    return tuple(sorted(bundle.name for bundle in bundles.iterdir()))


def cgroup_paths(paths: ClusterEnginePaths) -> frozenset[str]:
    """Return the cgroups that the bundles name. Source: OCI `cgroupsPath`."""
    cgroups = set()
    for name in task_ids(paths):
        try:
            bundle = json.loads((paths.engine.bundle(name) / "config.json").read_text())
            path = bundle["linux"]["cgroupsPath"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            # A bundle that was being created or removed when the engine ended has no cgroup.
            continue
        if isinstance(path, str) and _is_below_root(path):
            cgroups.add(path)
    return frozenset(cgroups)


def _is_below_root(path: str) -> bool:
    """Return whether a path is absolute, not the root, and without `..`."""
    parts = PurePosixPath(path).parts
    return len(parts) > 1 and parts[0] == "/" and ".." not in parts


def remove_cgroups(cgroup_paths: Iterable[str], cgroups: Cgroups) -> None:
    """Remove cgroups in every hierarchy, and then their empty parents. Those in use stay."""
    for hierarchy in cgroups.hierarchies:
        for path in cgroup_paths:
            _remove_branch(hierarchy / path.lstrip("/"), hierarchy)


def remove_mounts(
    directory: Path,
    take: Callable[[Path], None] = unmount,
    make_private: Callable[[Path], None] = isolate_below,
) -> None:
    """Unmount everything at a directory and below it with `take`.

    Raises LeftoverError if a mount stays, or if those below the directory cannot be made private.
    """
    place = directory.resolve()
    try:
        make_private(place)
    except OSError as error:
        # Unmounting would reach the host's own mounts.
        raise LeftoverError(f"the mounts below {place} cannot be made private: {error}") from error
    for mount in mounts_below(place, current_mounts()):
        try:
            isolate(mount.point)
            take(mount.point)
        except OSError as error:
            log.warning("mount cannot be removed", mount=mount.point, reason=error.strerror)
    left = mounts_below(place, current_mounts())
    if left:
        raise LeftoverError(f"{', '.join(str(entry.point) for entry in left)} cannot be unmounted")


def remove_directory(directory: Path, take: Callable[[Path], None] = unmount) -> None:
    """Unmount everything at and below a directory, then remove it.

    Raises LeftoverError if a mount stays, and removes nothing then: its content may not be ours.
    """
    remove_mounts(directory, take)
    remove_tree(directory)


def with_argument_below(directory: Path) -> list[int]:
    """Return the processes with an argument or option value that is a path below a directory.

    Excludes a command line that only contains such a path, as `sh -c` does, this process and its
    ancestors, and processes with a terminal: a user who reads a log. Monitors are daemons.
    """
    beginning, own = f"{directory}/", _own_line()
    return [
        pid
        for pid in all_pids()
        if pid not in own
        and not has_terminal(pid)
        and any(word.rpartition("=")[2].startswith(beginning) for word in arguments(pid) or ())
    ]


def _own_line() -> frozenset[int]:
    """Return the process IDs of this process and its ancestors."""
    line: list[int] = []
    pid: int | None = os.getpid()
    while pid:
        line.append(pid)
        pid = parent(pid)
    return frozenset(line)


def _remove_branch(cgroup: Path, hierarchy: Path) -> None:
    try:
        remove_directories(cgroup)
    except FileNotFoundError:
        log.debug("cgroup is gone already", cgroup=cgroup)
    except OSError:
        # In use.
        return
    for above in cgroup.parents:
        if above == hierarchy:
            return
        try:
            above.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            # In use, and so are its parents.
            return
