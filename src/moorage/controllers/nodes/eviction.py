"""Taint eviction controller: deletes pods that do not tolerate their node's NoExecute taints.

A pod that tolerates them for a limited time has one deadline, counted from when it was first seen
with such taints; without taints it has none. Source: API docs "Taint based Evictions".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError
from moorage.api.nodes import NO_SCHEDULE, Taint, tolerates
from moorage.api.pods import Toleration
from moorage.controllers.informers import NODE, Informers
from moorage.controllers.loop import Loop
from moorage.controllers.nodes.conditions import FALSE, READY, TRUE, UNKNOWN
from moorage.controllers.objects import PODS, Node, Pod
from moorage.controllers.pods import is_deleting
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, EventRecorder, reference
from moorage.wire.client.rest import Client, PatchType

# Taints derived from a node's conditions, and how long pods tolerate them. Pure.
#
# Source: API docs "Taints and Tolerations": taint nodes by condition, taint-based evictions.

NO_EXECUTE = "NoExecute"

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

_BY_CONDITION = {
    (READY, FALSE): NOT_READY,
    (READY, UNKNOWN): UNREACHABLE,
    ("MemoryPressure", TRUE): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", TRUE): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", TRUE): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", TRUE): "node.kubernetes.io/pid-pressure",
}
_NO_SCHEDULE_KEYS = frozenset({*_BY_CONDITION.values(), UNSCHEDULABLE})
_EVICTING_KEYS = (NOT_READY, UNREACHABLE)


def evicting_key(ready: str | None) -> str | None:
    """Return the key of the NoExecute taint for a Ready status; None if it requires none."""
    return _BY_CONDITION.get((READY, ready)) if ready is not None else None


def has_evicting_taint(node: Node) -> bool:
    """Return whether the node has a NoExecute taint for being not ready or unreachable."""
    return any(
        taint.effect == NO_EXECUTE and taint.key in _EVICTING_KEYS for taint in node.spec.taints
    )


def taints_after(node: Node, evicting: str | None, now: datetime) -> tuple[Taint, ...]:
    """Return the node's desired taints. Foreign taints and correct ones are kept unchanged.

    `evicting` is the key of the NoExecute taint for a lost node; None without one.
    """
    wanted = [(key, NO_SCHEDULE) for key in _no_schedule_keys(node)]
    if evicting is not None:
        wanted.append((evicting, NO_EXECUTE))
    kept = [
        taint for taint in node.spec.taints if not _is_ours(taint) or _identity(taint) in wanted
    ]
    present = {_identity(taint) for taint in kept}
    stamp = format_time(now)
    added = [
        Taint(key=key, effect=effect, time_added=stamp)
        for key, effect in wanted
        if (key, effect) not in present
    ]
    return (*kept, *added)


def seconds_borne(taints: Sequence[Taint], tolerations: Collection[Toleration]) -> float | None:
    """Return the seconds a pod tolerates these NoExecute taints: 0 not at all, None for ever."""
    borne: list[Toleration] = []
    for taint in taints:
        matching = next(
            (toleration for toleration in tolerations if tolerates(toleration, taint)), None
        )
        if matching is None:
            return 0.0
        borne.append(matching)
    limits = [
        toleration.toleration_seconds
        for toleration in borne
        if toleration.toleration_seconds is not None
    ]
    return max(0.0, float(min(limits))) if limits else None


def no_execute(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE)


def _no_schedule_keys(node: Node) -> list[str]:
    conditions = ((condition.type, condition.status) for condition in node.status.conditions)
    keys = [_BY_CONDITION[condition] for condition in conditions if condition in _BY_CONDITION]
    return [*keys, UNSCHEDULABLE] if node.spec.unschedulable else keys


def _is_ours(taint: Taint) -> bool:
    keys: Collection[str] = _NO_SCHEDULE_KEYS if taint.effect == NO_SCHEDULE else ()
    return taint.key in (_EVICTING_KEYS if taint.effect == NO_EXECUTE else keys)


def _identity(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect


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
