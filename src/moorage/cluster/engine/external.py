"""Removal of a cluster's pods from an external engine, which keeps running."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from moorage.api.logs import Log
from moorage.api.runtime_group import PROBE_LABEL
from moorage.cluster.errors import LeftoverError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.labels import OWNER, owner_of
from moorage.runtimes.probing.cri_configuration import probe_owner
from moorage.wire.cri import CriClient, CriError, pb
from moorage.wire.cri.client import REQUEST_TIMEOUT_S

log = Log(__name__)

_AT_ONCE = 8
_LIST_TIMEOUT_S = 10.0
_RETRY = (
    "start the engine and run `moor down` again, or leave the pods to it with "
    "`moor down --abandon-pods`"
)


async def end_pods(endpoint: str, layout: Layout, settings: Settings) -> int:
    """Stop and remove every sandbox of the cluster on an engine; return how many there were.

    Containers end without grace period, as with our own engine. Raises LeftoverError, which names
    the pods that may still run, if the engine cannot be reached or a sandbox stays.
    """
    try:
        async with CriClient(endpoint) as cri:
            ours = await _owned(cri, layout, settings)
            failures = await _remove_all(cri, ours)
            left = await _owned(cri, layout, settings)
    except CriError as error:
        pods = await asyncio.to_thread(_pods_on_disk, layout)
        if not pods:
            # No pod was started, so none can run there.
            log.warning("engine cannot be reached", endpoint=endpoint, reason=error.sentence)
            return 0
        raise LeftoverError(
            f"the engine at {endpoint} cannot be reached ({error.sentence}), so these pods may go "
            f"on running there: {', '.join(pods)}; {_RETRY}"
        ) from error
    if left:
        names = ", ".join(f"{_pod_of(sandbox)} (sandbox {sandbox.id})" for sandbox in left)
        why = "; ".join(failures)
        raise LeftoverError(f"the engine at {endpoint} still has {names}: {why}; {_RETRY}")
    return len(ours)


async def _owned(cri: CriClient, layout: Layout, settings: Settings) -> list[pb.PodSandbox]:
    request = pb.ListPodSandboxRequest()
    reply = await cri.call(cri.runtime.ListPodSandbox, request, timeout_s=_LIST_TIMEOUT_S)
    owner = owner_of(settings.cluster_id, settings.node_name)
    probes = probe_owner(settings.cluster_id, settings.node_name)
    paths = NodePaths(layout.node, layout.pod_logs)
    return [
        sandbox
        for sandbox in reply.items
        if _is_ours(sandbox, owner, settings.node_name, paths)
        or sandbox.labels.get(PROBE_LABEL) == probes
    ]


def _is_ours(sandbox: pb.PodSandbox, owner: str, node_name: str, paths: NodePaths) -> bool:
    """Return whether the cluster's agent created it; as in `moorage.node.garbage.containers`."""
    if sandbox.labels.get(OWNER) != node_name:
        return sandbox.labels.get(OWNER) == owner
    meta = sandbox.metadata
    return paths.has_traces(meta.namespace, meta.name, meta.uid)


async def _remove_all(cri: CriClient, sandboxes: Sequence[pb.PodSandbox]) -> list[str]:
    """Stop and remove sandboxes, 8 at a time; return a sentence for each failure."""
    slots = asyncio.Semaphore(_AT_ONCE)
    failures: list[str] = []

    async def remove(sandbox: pb.PodSandbox) -> None:
        async with slots:
            stop = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
            gone = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id)
            try:
                await cri.call(cri.runtime.StopPodSandbox, stop, timeout_s=REQUEST_TIMEOUT_S)
                await cri.call(cri.runtime.RemovePodSandbox, gone, timeout_s=REQUEST_TIMEOUT_S)
            except CriError as error:
                if not error.is_not_found:
                    failures.append(f"{_pod_of(sandbox)}: {error.sentence}")

    async with asyncio.TaskGroup() as tasks:
        for entry in sandboxes:
            tasks.create_task(remove(entry))
    return failures


def _pod_of(sandbox: pb.PodSandbox) -> str:
    return f"{sandbox.metadata.namespace}/{sandbox.metadata.name}"


def _pods_on_disk(layout: Layout) -> list[str]:
    """Return `namespace/name` of each pod that has a directory on the node."""
    present = {entry.name for entry in _entries(layout.node / "pods")}
    named = {}
    for entry in _entries(layout.pod_logs):
        # Neither namespaces nor names contain an underscore.
        namespace, _, rest = entry.name.partition("_")
        name, _, uid = rest.rpartition("_")
        named[uid] = f"{namespace}/{name}"
    return sorted(named.get(uid, f"uid {uid}") for uid in present)


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
