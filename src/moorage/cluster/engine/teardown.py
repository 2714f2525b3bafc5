"""Teardown of a cluster's engine: pods, processes, mounts, namespaces, cgroups, network.

An engine in this process stops the pods, so that CNI releases their resources; the sweep removes
the rest, or everything where no engine can run any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.engine.paths import HUGETLB_MARKER, ClusterEnginePaths
from moorage.cluster.engine.plan import EnginePlan
from moorage.cluster.engine.sweep import (
    cgroup_paths,
    end_processes,
    remove_cgroups,
    remove_directory,
    remove_mounts,
    task_ids,
)
from moorage.cluster.host import Inventory
from moorage.cluster.host.hugetlb import unmount_hugetlb_v1
from moorage.cluster.layout import RUN
from moorage.cluster.network import PodNetwork, forget, remove
from moorage.engine.engine import Engine, running
from moorage.engine.errors import EngineError
from moorage.engine.options import EngineOptions

log = Log(__name__)


@dataclass(frozen=True)
class TeardownSteps:
    """What a teardown calls, in this order."""

    run_engine: Callable[[EngineOptions], AbstractAsyncContextManager[Engine]] = running
    end_processes: Callable[[ClusterEnginePaths], Awaitable[None]] = end_processes
    remove_cgroups: Callable[..., None] = remove_cgroups
    remove_mounts: Callable[[Path], None] = remove_mounts
    remove_directory: Callable[[Path], None] = remove_directory
    unmount_hugetlb: Callable[[Path], object] = unmount_hugetlb_v1
    forget: Callable[[PodNetwork, tuple[str, ...]], None] = forget
    remove_network: Callable[[PodNetwork, Inventory], Awaitable[None]] = remove


_STEPS = TeardownSteps()


async def tear_down(
    plan: EnginePlan, *, cgroup_root: str = "", steps: TeardownSteps = _STEPS
) -> None:
    """Stop every pod and remove all that the engine has on the host, except its data.

    No engine may be running on these paths. `cgroup_root` is the cgroup of the node agent's pods,
    which is removed too.

    Raises LeftoverError if something cannot be removed, CommandError if the network cannot.
    """
    cgroups = cgroup_paths(plan.paths)
    if plan.paths.engine.run.is_dir():
        await _end_by_engine(plan, steps)
    await sweep(plan.paths, plan.host, plan.network, cgroups | {cgroup_root}, steps)


async def sweep(
    paths: ClusterEnginePaths,
    host: Inventory,
    network: PodNetwork,
    cgroups: frozenset[str] = frozenset(),
    steps: TeardownSteps = _STEPS,
) -> None:
    """Remove all that is left of an engine that is not running.

    `cgroups` are removed besides those that its bundles name. Raises LeftoverError if something
    cannot be removed, CommandError if the network cannot.
    """
    paths_to_remove = (cgroups | cgroup_paths(paths)) - {""}
    ids = task_ids(paths)
    await steps.end_processes(paths)
    await asyncio.to_thread(steps.remove_cgroups, paths_to_remove, host.cgroups)
    steps.remove_mounts(paths.data)
    await asyncio.to_thread(steps.remove_directory, paths.run)
    await asyncio.to_thread(
        remove_shared, paths.run.parent, paths.hugetlb_marker, steps.unmount_hugetlb
    )
    steps.forget(network, ids)
    await steps.remove_network(network, host)


def remove_shared(
    shared: Path = RUN,
    marker: Path = HUGETLB_MARKER,
    unmount: Callable[[Path], object] = unmount_hugetlb_v1,
) -> None:
    """Remove what the clusters on this host share, if no other has a run directory."""
    if not shared.is_dir() or any(directory.is_dir() for directory in shared.iterdir()):
        return
    unmount(marker)
    if marker.exists():
        return
    try:
        shared.rmdir()
    except OSError as error:
        # Another cluster has used or removed it since.
        log.info("directory stays", directory=shared, reason=error.strerror)


async def _end_by_engine(plan: EnginePlan, steps: TeardownSteps) -> None:
    try:
        async with steps.run_engine(plan.options) as engine:
            await engine.remove_all()
    except (EngineError, OSError) as error:
        log.warning("killing the processes of pods", reason=error)
