"""Pod garbage collector: deletes pods of deleted nodes, and ended pods beyond a limit.

Source: API docs "Garbage collection of Pods".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError
from moorage.api.logs import Log
from moorage.controllers.informers import NODE, Informers
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.nodes.conditions import TRUE, ready_status
from moorage.controllers.nodes.eviction import OUT_OF_SERVICE
from moorage.controllers.objects import PODS, Node, Pod
from moorage.controllers.options import ControllerOptions
from moorage.controllers.pods import is_deleting, is_ended
from moorage.wire.client.informer import object_key
from moorage.wire.client.resources import NODES as FULL_NODES
from moorage.wire.client.rest import Client, PatchType

_NODE, _POD, _ENDED = "node", "pod", "ended"
_Key = tuple[str, str]

log = Log(__name__)


def surplus_ended(pods: list[Pod], kept: int) -> list[Pod]:
    """Return the ended pods beyond the number kept: evicted ones first, then the oldest."""

    def order(pod: Pod) -> tuple[bool, str, str]:
        is_evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
        return not is_evicted, pod.metadata.creation_timestamp or "", pod.metadata.name

    ended = sorted((pod for pod in pods if is_ended(pod) and not is_deleting(pod)), key=order)
    return ended[: max(0, len(ended) - kept)]


class PodGarbageCollector:
    """Deletes orphaned, terminating unscheduled and surplus ended pods.

    Keys are (what, name): a node's orphans, one deleted pod, or all ended pods.
    """

    def __init__(
        self, client: Client, informers: Informers, options: ControllerOptions, clock: Clock
    ) -> None:
        self._client = client
        self._pods = informers.pods
        self._nodes = informers.nodes
        self._options = options
        self._clock = clock
        self._ended = 0
        self.run = Loop(
            "pod garbage",
            self._reconcile,
            [(self._pods, self._pod_changed), (self._nodes, self._node_changed)],
            clock,
        ).run

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[Queued[_Key]]:
        if after is None and before is not None:
            yield from self._quarantine(before.metadata.name)
        elif after is not None and _is_out_of_service(after):
            for pod in self._pods.by_index(NODE, after.metadata.name):
                if is_deleting(pod):
                    yield (_POD, object_key(pod.metadata))

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[Queued[_Key]]:
        was_ended = before is not None and is_ended(before)
        if after is None:
            self._ended -= was_ended
            return
        self._ended += is_ended(after) - was_ended
        if is_ended(after) and self._ended > self._options.terminated_pods_kept:
            yield (_ENDED, "")
        if is_deleting(after) and (before is None or not is_deleting(before)):
            yield (_POD, object_key(after.metadata))
        name = after.spec.node_name
        if name and (before is None or not before.spec.node_name) and self._nodes.get(name) is None:
            yield from self._quarantine(name)

    def _quarantine(self, node: str) -> Iterator[Queued[_Key]]:
        # A node that has just gone may come back, or is not in our copy yet.
        yield After((_NODE, node), self._options.orphan_pod_quarantine_s)

    async def _reconcile(self, key: tuple[str, str]) -> float | None:
        what, name = key
        if what == _NODE:
            await self._remove_orphans(name)
        elif what == _POD:
            await self._end_deletion(name)
        else:
            for pod in surplus_ended(list(self._pods), self._options.terminated_pods_kept):
                await self._remove(pod, {})
        return None

    async def _remove_orphans(self, node: str) -> None:
        pods = self._pods.by_index(NODE, node)
        if not pods or self._nodes.get(node) is not None or await self._exists(node):
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": format_time(self._clock.now()),
        }
        for pod in pods:
            log.info("removing orphaned pod", pod=object_key(pod.metadata), node=node)
            generation = pod.metadata.generation
            await self._remove(
                pod, {"conditions": [{**condition, "observedGeneration": generation}]}
            )

    async def _exists(self, node: str) -> bool:
        try:
            await self._client.get(FULL_NODES, node)
        except NotFoundError:
            return False
        return True

    async def _end_deletion(self, key: str) -> None:
        """Remove a terminating pod that has no node, or whose node is out of service."""
        pod = self._pods.get_key(key)
        if pod is None or not is_deleting(pod):
            return
        node = self._nodes.get(pod.spec.node_name)
        if not pod.spec.node_name or (node is not None and _is_out_of_service(node)):
            await self._remove(pod, {})

    async def _remove(self, pod: Pod, status: dict[str, Any]) -> None:
        """Set the phase to Failed, so that the pod's controller sees it; then force-delete it."""
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": {**status, "phase": "Failed"}}
        try:
            if not is_ended(pod):
                await self._client.patch(
                    PODS, meta.name, patch, meta.namespace,
                    kind=PatchType.STRATEGIC, subresource="status",
                )  # fmt: skip
            await self._client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0
            )
        except NotFoundError:
            return  # Gone already, as wanted.


def _is_out_of_service(node: Node) -> bool:
    has_taint = any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)
    return has_taint and ready_status(node) != TRUE
