"""Takes a private engine off the machine: pods, processes, mounts, namespaces, cgroups, network.

Pods are ended through the engine while it can still do that, since CNI then gives back what each
had; what is left after that, or when the engine doesn't work any more, is swept.
"""

from __future__ import annotations

import asyncio

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.cluster.containerd.life import EngineStartError, PrivateContainerd
from moorage.cluster.containerd.paths import HUGETLB_MARKER, RUN, EnginePaths
from moorage.cluster.containerd.plan import EnginePlan
from moorage.cluster.containerd.sweep import (
    LeftoverError,
    cgroup_paths,
    end_processes,
    remove_cgroups,
    remove_folder,
    remove_mounts,
    remove_sockets,
    sandbox_ids,
)
from moorage.cluster.host import Host
from moorage.cluster.host.hugetlb import part_hugetlb
from moorage.cluster.network import PodNetwork, forget, remove
from moorage.cri import CriClient, CriError, pb

POD_DEADLINE_S = 30.0
_AT_ONCE = 8

log = Log(__name__)


async def tear_down(
    plan: EnginePlan, clock: Clock, *, cgroup_root: str = "", removes_data: bool = False
) -> None:
    """End every pod, stop the engine, and leave nothing of it but (unless removed) its data.

    A running engine is taken over, a stopped one with sandboxes is started for it. `cgroup_root`
    is the cgroup below which the node agent has its pods, which goes too. Raises LeftoverError
    when something could not be removed, CommandError when the network could not.
    """
    cgroups = cgroup_paths(plan.paths)
    if cgroups or plan.paths.record.exists():
        await _end_by_engine(plan, clock)
    await sweep(plan.paths, plan.host, plan.network, cgroups | {cgroup_root})
    if removes_data:
        await asyncio.to_thread(remove_folder, plan.paths.data)


async def sweep(
    paths: EnginePaths, host: Host, network: PodNetwork, cgroups: frozenset[str] = frozenset()
) -> None:
    """Remove all that is left of an engine that doesn't run. `cgroups` are more of its cgroups.

    Raises LeftoverError and CommandError.
    """
    known = (cgroups | cgroup_paths(paths)) - {""}
    ids = sandbox_ids(paths)
    await end_processes(paths)
    await asyncio.to_thread(remove_cgroups, known, host.cgroups)
    remove_sockets(paths)
    remove_mounts(paths.data)
    await asyncio.to_thread(remove_folder, paths.run)
    await asyncio.to_thread(_leave_machine)
    forget(network, ids)
    await remove(network, host)


def _leave_machine() -> None:
    """What clusters share goes with the last of them."""
    if not RUN.is_dir() or any(each.is_dir() for each in RUN.iterdir()):
        return
    part_hugetlb(HUGETLB_MARKER)
    if HUGETLB_MARKER.exists():
        return
    try:
        RUN.rmdir()
    except OSError as error:
        # Another cluster came into it, or took it away, since it was looked at.
        log.info("folder stays", folder=RUN, reason=error.strerror)


async def _end_by_engine(plan: EnginePlan, clock: Clock) -> None:
    engine = PrivateContainerd(plan, clock)
    try:
        await engine.start()
    except (EngineStartError, LeftoverError, OSError) as error:
        log.warning("engine does not start, so pods are ended by force", reason=error)
        return
    try:
        async with CriClient(engine.endpoint) as cri:
            await end_pods(cri)
    except CriError as error:
        log.warning("engine does not answer, so pods are ended by force", reason=error)
    finally:
        await engine.stop()


async def end_pods(cri: CriClient) -> None:
    """Stop and remove every sandbox of an engine, some at a time; what fails is logged."""
    request = pb.ListPodSandboxRequest()
    listed = (await cri.call(cri.runtime.ListPodSandbox, request)).items
    waiting = [sandbox.id for sandbox in listed]
    async with asyncio.TaskGroup() as group:
        for _ in range(min(_AT_ONCE, len(waiting))):
            group.create_task(_end_each(cri, waiting))


async def _end_each(cri: CriClient, waiting: list[str]) -> None:
    while waiting:
        await _end(cri, waiting.pop())


async def _end(cri: CriClient, sandbox_id: str) -> None:
    try:
        await cri.call(
            cri.runtime.StopPodSandbox,
            pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id),
            timeout_s=POD_DEADLINE_S,
        )
        await cri.call(
            cri.runtime.RemovePodSandbox,
            pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id),
            timeout_s=POD_DEADLINE_S,
        )
    except CriError as error:
        log.warning("sandbox is ended by force", sandbox=sandbox_id, reason=error)
