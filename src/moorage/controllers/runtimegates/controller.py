"""The controller of gates: removes the scheduling gate of pods the moment a node has their handler.

It watches pods that do not run yet, which are few, and knows nodes, classes and profiles as the
webhook does. Keys are pods; a change of what nodes have queues the pods that wait. Conditions and
events say what a pod waits for, and what to do for one that admission has not placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moorage.api.clock import Clock, format_time
from moorage.api.conditions import is_true
from moorage.api.errors import NotFoundError
from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.pods import MIRROR_ANNOTATION, PodCondition
from moorage.api.runtime_group import (
    HANDLER_AVAILABLE,
    HANDLER_GATE,
    HELD_FOR_ANNOTATION,
    RuntimeClass,
    RuntimeProfile,
    node_of_profile,
)
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.objects import Node
from moorage.controllers.runtimegates.verdict import (
    GATHER_S,
    UNAVAILABLE,
    Pace,
    Verdict,
    Verdicts,
    judge,
)
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import demanded_features
from moorage.runtimeclass.index_feed import IndexFeed
from moorage.runtimeclass.node_sets import NodeFacts, NodeFactsStatus
from moorage.runtimeclass.placing import has_gate
from moorage.runtimeclass.validation import is_implicit
from moorage.wire.client.informer import Informer, latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import PODS, read_as
from moorage.wire.client.rest import Client, PatchType

_WORKERS = 4
_SWEEP = ""
_SYSTEM_NAMESPACE = "kube-system"
_PENDING = "Pending"


class PendingPodStatus(Object, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()


class PendingPod(Object, frozen=True):
    """A pod that does not run yet: whole as the server sends it, then as far as its place matters.

    `demanded` are the features that its specification asks for, of which little is kept.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: Raw = {}
    status: PendingPodStatus = PendingPodStatus()
    demanded: tuple[str, ...] = ()


class RuntimeGateController:
    """Watches pods in the phase Pending; `profiles` is shared, and run by its caller."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        profiles: Informer[RuntimeProfile],
        recorder: EventRecorder,
        clock: Clock,
        judge: Callable[..., Verdict] = judge,
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._index = ClassIndex()
        self._feed = IndexFeed(self._index)
        self._pods = Informer(
            client,
            read_as(PODS, PendingPod),
            field_selector=f"status.phase={_PENDING}",
            keep=_kept,
            clock=clock,
        )
        self._sources = (informers.nodes, informers.runtime_classes, profiles)
        self._verdicts = Verdicts(self._index, judge=judge)
        self._waiting: set[str] = set()
        self._unsettled: set[str] = set()
        self._said: dict[str, PodCondition] = {}
        """What was written last, by the pod's uid, until the watch shows it."""
        self._pace = Pace()
        self._known = -1
        self._loop: Loop[str] = Loop(
            "runtime gates",
            self._reconcile,
            [
                (informers.nodes, self._node_changed),
                (informers.runtime_classes, self._class_changed),
                (profiles, self._profile_changed),
                (self._pods, self._pod_changed),
            ],
            clock,
            owned=[self._pods],
            workers=_WORKERS,
        )

    async def run(self) -> None:
        """Reconcile until cancelled. The server must serve profiles."""
        # Pods come last, so that their list is not older than what they are judged by.
        await wait_synced(*self._sources)
        await self._loop.run()

    def _pod_changed(self, before: PendingPod | None, after: PendingPod | None) -> Iterator[str]:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._said.pop(before.metadata.uid, None)
        if after is not None:
            uid = after.metadata.uid
            said = self._said.get(uid)
            if said is not None and _is_same(said, _condition(after.status.conditions)):
                del self._said[uid]
            if _is_of_concern(after):
                yield object_key(after.metadata)
        elif before is not None:
            key = object_key(before.metadata)
            self._waiting.discard(key)
            if _is_said_unavailable(before.status.conditions):
                # It runs now, or is gone.
                self._unsettled.add(key)
                yield key

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[Queued[str]]:
        self._feed.node_changed(_facts(before), _facts(after))
        yield from self._changed(latest(before, after).metadata.name)

    def _class_changed(
        self, before: RuntimeClass | None, after: RuntimeClass | None
    ) -> Iterator[Queued[str]]:
        self._feed.class_changed(before, after)
        yield from self._changed()

    def _profile_changed(
        self, before: RuntimeProfile | None, after: RuntimeProfile | None
    ) -> Iterator[Queued[str]]:
        self._feed.profile_changed(before, after)
        yield from self._changed(node_of_profile(latest(before, after).metadata.name))

    def _changed(self, node: str = "") -> Iterator[Queued[str]]:
        """Have the waiting pods looked at, unless what is known is as it was.

        `node` is that of which something else is known, empty for a class.
        """
        if self._index.version == self._known:
            return
        self._known = self._index.version
        if self._waiting:
            now_s = self._clock.monotonic()
            delay_s = self._pace.delay_s(node, now_s) if node else GATHER_S
            yield After(_SWEEP, delay_s)

    async def _reconcile(self, key: str) -> float | None:
        if key == _SWEEP:
            for waiting in self._waiting:
                self._loop.add(waiting)
            return None
        pod = self._pods.get_key(key)
        if pod is None:
            if key in self._unsettled:
                await self._settle_running(key)
                self._unsettled.discard(key)
            return None
        if not _is_of_concern(pod) or pod.metadata.deletion_timestamp is not None:
            self._waiting.discard(key)
            return None
        verdict = self._verdict(pod)
        # A pod that is bound, or not held, may come to lack its handler.
        self._waiting.add(key)
        try:
            if verdict.releases:
                await self._release(pod, verdict.labels)
            await self._say(pod, verdict)
        except NotFoundError:
            self._waiting.discard(key)
        return None

    def _verdict(self, pod: PendingPod) -> Verdict:
        meta = pod.metadata
        is_placeable = meta.namespace != _SYSTEM_NAMESPACE
        return self._verdicts.on(
            meta.annotations, pod.spec, pod.demanded, is_placeable=is_placeable
        )

    async def _release(self, pod: PendingPod, labels: Iterable[str]) -> None:
        """Remove the gate, and require labels of nodes. Others' gates stay.

        Raises ConflictError where the pod is not as it was judged.
        """
        meta = pod.metadata
        patch: dict[str, Any] = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {HELD_FOR_ANNOTATION: None},
            },
            "spec": {"schedulingGates": [{"$patch": "delete", "name": HANDLER_GATE}]},
        }
        if labels:
            patch["spec"]["nodeSelector"] = dict.fromkeys(labels, "true")
        await self._client.patch(PODS, meta.name, patch, meta.namespace, kind=PatchType.STRATEGIC)

    async def _say(self, pod: PendingPod, verdict: Verdict) -> None:
        """Write condition and event where the verdict differs from what the pod says."""
        if verdict.is_available is None:
            if verdict.releases:
                self._recorder.record(
                    reference(PODS, pod), WARNING, verdict.reason, verdict.message
                )
            return
        # The pod may be as it was before the last write, which removed its gate.
        before = self._said.get(pod.metadata.uid) or _condition(pod.status.conditions)
        if before is None:
            # Most pods never wait.
            is_new = verdict.releases or not verdict.is_available
        else:
            is_new = (before.status == "True") != verdict.is_available or (
                not verdict.is_available and before.reason != verdict.reason
            )
        if not is_new:
            return
        await self._write(pod.metadata, verdict)
        about = reference(PODS, pod)
        if verdict.is_available:
            gone = "; its scheduling gate is removed" if verdict.releases else ""
            self._recorder.record(about, NORMAL, verdict.reason, f"{verdict.message}{gone}")
        else:
            self._recorder.record(about, WARNING, UNAVAILABLE, verdict.message)

    async def _write(self, meta: ObjectMeta, verdict: Verdict) -> None:
        condition = PodCondition(
            type=HANDLER_AVAILABLE,
            status="True" if verdict.is_available else "False",
            reason=verdict.reason,
            message=verdict.message,
            last_transition_time=format_time(self._clock.now()),
        )
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        self._said[meta.uid] = condition
        try:
            await self._client.patch(
                PODS, meta.name, patch, meta.namespace,
                kind=PatchType.STRATEGIC, subresource="status",
            )  # fmt: skip
        except BaseException:
            self._said.pop(meta.uid, None)
            raise
        present = self._pods.get_key(object_key(meta))
        if present is None or present.metadata.uid != meta.uid:
            # It runs by now, or is gone: the watch shows nothing more of it.
            self._said.pop(meta.uid, None)

    async def _settle_running(self, key: str) -> None:
        """Correct the condition of a pod that came to run, so that it does not stay for ever."""
        namespace, _, name = key.partition("/")
        try:
            pod = await self._client.get(read_as(PODS, PendingPod), name, namespace)
        except NotFoundError:
            return
        if pod.spec.get("nodeName") and _is_said_unavailable(pod.status.conditions):
            await self._write(pod.metadata, Verdict(True, "PodStarted", "the pod has started"))


def _facts(node: Node | None) -> NodeFacts | None:
    if node is None:
        return None
    handlers = tuple(node.status.runtime_handlers)
    status = NodeFactsStatus(runtime_handlers=handlers)  # type: ignore[arg-type]
    return NodeFacts(metadata=node.metadata, status=status)


def _condition(conditions: tuple[PodCondition, ...]) -> PodCondition | None:
    return next((one for one in conditions if one.type == HANDLER_AVAILABLE), None)


def _is_same(one: PodCondition, other: PodCondition | None) -> bool:
    return other is not None and (one.status, one.reason) == (other.status, other.reason)


def _is_said_unavailable(conditions: tuple[PodCondition, ...]) -> bool:
    return _condition(conditions) is not None and not is_true(conditions, HANDLER_AVAILABLE)


def _is_of_concern(pod: PendingPod) -> bool:
    """Return whether a pod waits for a handler, or has the gate of those that do."""
    if pod.status.phase != _PENDING or MIRROR_ANNOTATION in pod.metadata.annotations:
        return False
    if has_gate(pod.spec):
        return True
    has_class = not is_implicit(pod.spec.get("runtimeClassName"))
    return has_class and pod.metadata.namespace != _SYSTEM_NAMESPACE


def _kept(pod: PendingPod) -> PendingPod:
    """Return the fields of a pod that are kept: of an irrelevant one its identity."""
    meta = pod.metadata
    kept = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
    metadata = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        annotations=kept,
    )
    if not _is_of_concern(pod):
        return PendingPod(metadata=metadata)
    conditions = tuple(one for one in pod.status.conditions if one.type == HANDLER_AVAILABLE)
    return PendingPod(
        metadata=metadata,
        spec={key: pod.spec[key] for key in _PLACE_FIELDS if key in pod.spec},
        status=PendingPodStatus(phase=_PENDING, conditions=conditions),
        demanded=demanded_features(pod.spec),
    )


_ANNOTATIONS = (HELD_FOR_ANNOTATION, MIRROR_ANNOTATION)
_PLACE_FIELDS = ("nodeName", "runtimeClassName", "nodeSelector", "affinity", "schedulingGates")
