"""Static pods' keeper: follows the directory, hands its pods to the pod manager, keeps mirrors.

inotify ─▶ read all files ─▶ PodManager.set_static ─▶ workers
pod informer (mirrors) ─▶ plan ─▶ create, delete; statuses go to the mirrors
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.nodes import Node
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.linux.inotify import Inotify
from moorage.node.notifier import Notifier
from moorage.node.pod_facts.references import format_pod
from moorage.node.pod_facts.sources import CONFIG_HASH, is_mirror
from moorage.node.pods.pod_manager import PodManager
from moorage.node.static_pods.manifests import read_manifests
from moorage.node.status.writer import StatusWriter
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client, UnreachableError

log = Log(__name__)

_AGAIN_S = 20.0
"""As the kubelet's `fileCheckFrequency`: a change that was missed, or a call that failed."""


class StaticPodKeeper:
    """Keeps the static pods of one directory. `run()` blocks until cancelled."""

    def __init__(
        self,
        *,
        directory: Path,
        node_name: str,
        client: Client,
        pods: Informer[Pod],
        pod_manager: PodManager,
        writer: StatusWriter,
        node: Callable[[], Node | None],
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._node_name = node_name
        self._client = client
        self._pods = pods
        self._pod_manager = pod_manager
        self._writer = writer
        self._node = node
        self._wake = Notifier(clock)
        self._problems: tuple[str, ...] = ()

    async def load(self) -> None:
        """Read the directory, and hand its pods to the pod manager. Raises OSError."""
        found = await asyncio.to_thread(read_manifests, self._directory, self._node_name)
        if found.problems != self._problems:
            self._problems = found.problems
            for problem in found.problems:
                log.warning("static pod left out", problem=problem)
        self._pod_manager.set_static(found.pods)

    async def run(self) -> None:
        self._pods.add_handler(self._on_pod)
        self._pod_manager.add_listener(self._wake.call)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            while True:
                try:
                    await self.load()
                    await self.reconcile()
                except (OSError, StatusError, UnreachableError) as error:
                    log.warning("static pods not reconciled", error=error)
                await self._wake.wait(_AGAIN_S)

    async def reconcile(self) -> None:
        """Make the mirrors agree with the static pods. Raises StatusError, UnreachableError."""
        mirrors = [pod for pod in self._pods if is_mirror(pod)]
        plan = plan_mirrors(self._pod_manager.static_pods, mirrors)
        for pod, mirror in plan.pairs:
            self._writer.mirror_seen(pod.metadata.uid, mirror)
        for mirror in plan.delete:
            await self._delete(mirror)
        for pod in plan.create:
            await self._create(pod)

    async def _create(self, pod: Pod) -> None:
        node = self._node()
        if node is None:
            return
        try:
            mirror = await self._client.create(PODS, mirror_of(pod, node), pod.metadata.namespace)
        except AlreadyExistsError:
            log.warning("another pod has the name of a static pod", pod=format_pod(pod))
            return
        self._writer.mirror_seen(pod.metadata.uid, mirror)

    async def _delete(self, mirror: Pod) -> None:
        meta = mirror.metadata
        try:
            await self._client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0
            )
        except (NotFoundError, ConflictError):
            log.debug("mirror already deleted", pod=format_pod(mirror))

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is not None and is_mirror(pod):
            self._wake.call()

    async def _follow(self) -> None:
        """Wake the keeper at changes of the directory, which may be made later."""
        with Inotify() as changes:
            changes.watch(self._directory.parent)
            while True:
                changes.watch(self._directory)
                await changes.changes()
                self._wake.call()


# Mirror pods: what the API shows of static pods. The plan is pure.
#
# A mirror has the annotation `kubernetes.io/config.mirror` with the hash of its manifest, and the
# node as its owner. One that is deleted is made again; one whose static pod is gone or has changed
# is deleted. Source: kubelet `pod/mirror_client.go`, KEP-1314.


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Mirrors to delete, static pods whose mirror is to be created, and pairs that agree."""

    delete: tuple[Pod, ...] = ()
    create: tuple[Pod, ...] = ()
    pairs: tuple[tuple[Pod, Pod], ...] = ()


def plan_mirrors(static: Iterable[Pod], mirrors: Iterable[Pod]) -> MirrorPlan:
    """Return the changes that make the mirrors agree with the static pods of this node."""
    by_name = {_name(mirror): mirror for mirror in mirrors}
    delete, create, pairs = [], [], []
    for pod in static:
        mirror = by_name.pop(_name(pod), None)
        if mirror is None:
            create.append(pod)
        elif is_mirror_of(mirror, pod) and mirror.metadata.deletion_timestamp is None:
            pairs.append((pod, mirror))
        else:
            # It is created when the API has deleted this one.
            delete.append(mirror)
    return MirrorPlan((*delete, *by_name.values()), tuple(create), tuple(pairs))


def is_mirror_of(mirror: Pod, pod: Pod) -> bool:
    """Return whether a mirror shows this version of a static pod."""
    return mirror.metadata.annotations.get(MIRROR_ANNOTATION) == pod.metadata.annotations.get(
        CONFIG_HASH
    )


def mirror_of(pod: Pod, node: Node) -> dict[str, Any]:
    """Return the mirror of a static pod, to create."""
    meta = pod.metadata
    return {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": dict(meta.labels),
            "annotations": {
                **meta.annotations,
                MIRROR_ANNOTATION: meta.annotations[CONFIG_HASH],
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node.metadata.name,
                    "uid": node.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": msgspec.to_builtins(pod.spec),
    }


def _name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name
