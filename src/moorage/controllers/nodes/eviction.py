"""Taint eviction controller: deletes pods that do not tolerate their node's NoExecute taints.

A pod that tolerates them for a limited time has one deadline, counted from when it was first seen
with such taints; without taints it has none. Source: API docs "Taint based Evictions".
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError
from moorage.controllers.informers import NODE, Informers
from moorage.controllers.loop import Loop, latest
from moorage.controllers.nodes.taints import no_execute, seconds_borne
from moorage.controllers.objects import PODS, Node, Pod
from moorage.controllers.pods import is_deleting
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import NORMAL, EventRecorder, reference
from moorage.wire.client.rest import Client, PatchType

_REASON = "DeletionByTaintManager"
_MESSAGE = "Taint manager: deleting due to NoExecute taint"


class TaintEvictionController:
    """Watches nodes and pods; deletes pods that no longer tolerate NoExecute taints."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._nodes = informers.nodes
        self._pods = informers.pods
        self._recorder = recorder
        self._clock = clock
        self._since: dict[str, tuple[str, float]] = {}
        """Pod key → its uid, and when it was first seen with NoExecute taints (monotonic)."""
        self.run = Loop(
            "taint evictions",
            self._reconcile,
            [
                (self._nodes, self._node_changed),
                (self._pods, self._pod_changed),
            ],
            clock,
            workers=8,
        ).run

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[str]:
        either = latest(before, after)
        was = no_execute(before) if before is not None else ()
        now = no_execute(after) if after is not None else ()
        if was != now:
            for pod in self._pods.by_index(NODE, either.metadata.name):
                yield object_key(pod.metadata)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        either = latest(before, after)
        key = object_key(either.metadata)
        if after is None:
            self._since.pop(key, None)
        elif after.spec.node_name and (before is None or _is_news(before, after)):
            yield key

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get_key(key)
        if pod is None or is_deleting(pod):
            self._since.pop(key, None)
            return None
        node = self._nodes.get(pod.spec.node_name)
        taints = no_execute(node) if node is not None else ()
        borne_s = seconds_borne(taints, pod.spec.tolerations)
        if borne_s is None:
            self._cancel(key, pod)
            return None
        left_s = self._left_s(key, pod, borne_s)
        if left_s > 0:
            return left_s
        self._since.pop(key, None)
        await self._evict(key, pod)
        return None

    def _left_s(self, key: str, pod: Pod, borne_s: float) -> float:
        now = self._clock.monotonic()
        uid, since = self._since.get(key, ("", now))
        if uid != pod.metadata.uid:
            since = now
        self._since[key] = (pod.metadata.uid, since)
        return since + borne_s - now

    def _cancel(self, key: str, pod: Pod) -> None:
        if self._since.pop(key, None) is not None:
            self._record_event(pod, f"Cancelling deletion of Pod {key}")

    async def _evict(self, key: str, pod: Pod) -> None:
        self._record_event(pod, f"Marking for deletion Pod {key}")
        meta = pod.metadata
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": _REASON,
            "message": _MESSAGE,
            "lastTransitionTime": format_time(self._clock.now()),
            "observedGeneration": meta.generation,
        }
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS, meta.name, patch, meta.namespace,
                kind=PatchType.STRATEGIC, subresource="status",
            )  # fmt: skip
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except NotFoundError:
            return  # Gone already, as wanted.

    def _record_event(self, pod: Pod, message: str) -> None:
        self._recorder.record(reference(PODS, pod), NORMAL, "TaintManagerEviction", message)


def _is_news(before: Pod, after: Pod) -> bool:
    return (
        before.metadata.uid != after.metadata.uid
        or before.spec.node_name != after.spec.node_name
        or before.spec.tolerations != after.spec.tolerations
    )
