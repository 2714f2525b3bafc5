"""Scheduler API calls: bind pods, report failed attempts, evict preemption victims.

Each method submits its calls and returns without waiting; calls for one pod run in order. Failures
are reported through the callbacks, which run on the event loop thread that also decides.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.clock import Clock
from moorage.api.disruptions import DISRUPTION_TARGET
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object, ObjectMeta
from moorage.api.pods import Pod
from moorage.scheduler import messages, status
from moorage.scheduler.api_dispatcher import ApiDispatcher
from moorage.scheduler.event_buffer import EventBuffer
from moorage.scheduler.preemption import Preemption
from moorage.scheduler.status import Patch
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import NORMAL, WARNING, reference
from moorage.wire.client.resources import PODS, Resource
from moorage.wire.client.rest import Client, PatchType, UnreachableError

log = Log(__name__)


class Binding(Object, frozen=True):
    """The request body that assigns a pod to a node. Source: core/v1 `Binding`."""

    metadata: ObjectMeta = ObjectMeta()


BINDINGS: Resource[Binding] = Resource(
    group=PODS.group, version=PODS.version, plural=PODS.plural, kind="Binding", type=Binding
)

CallFailed = (StatusError, UnreachableError)


class Actions:
    """Writes scheduling decisions to the API server.

    `name` is the scheduler's name, used in the DisruptionTarget condition of victims.
    """

    def __init__(
        self,
        client: Client,
        announcer: EventBuffer,
        calls: ApiDispatcher,
        clock: Clock,
        *,
        name: str,
    ) -> None:
        self._client = client
        self._announcer = announcer
        self._calls = calls
        self._clock = clock
        self._name = name

    def bind(self, pod: Pod, node_name: str, on_failure: Callable[[str], None]) -> None:
        """Submit the pod's Binding to the node.

        Calls `on_failure` with the reason if the request fails, else records a Scheduled event.
        """

        async def call() -> None:
            meta = pod.metadata
            try:
                await self._client.create(
                    BINDINGS,
                    status.binding(pod, node_name),
                    meta.namespace,
                    name=meta.name,
                    subresource="binding",
                )
            except CallFailed as error:
                log.warning("not bound", pod=object_key(meta), node=node_name, error=error)
                on_failure(f'running Bind plugin "DefaultBinder": {error}')
                return
            log.debug("bound", pod=object_key(meta), node=node_name)
            self._record(
                pod,
                NORMAL,
                "Scheduled",
                f"Successfully assigned {meta.namespace}/{meta.name} to {node_name}",
            )

        self._calls.submit(object_key(pod.metadata), call)

    def report_failure(self, pod: Pod, message: str) -> None:
        """Record a FailedScheduling event with the message, cut to the event limit."""
        self._record(pod, WARNING, "FailedScheduling", messages.event_note(message))

    def report_unknown_handler(self, pod: Pod, handler: str) -> None:
        """Record that no node has the handler, by the event that a node writes where one is bound.

        Programs and upstream's RuntimeClass specification wait for that event, whatever schedules.
        """
        name = pod.spec.runtime_class_name
        self._record(
            pod,
            WARNING,
            "FailedCreatePodSandBox",
            messages.event_note(
                f'Failed to create pod sandbox: no node has the runtime handler "{handler}" of '
                f'RuntimeClass "{name}"'
            ),
        )

    def patch_status(self, pod: Pod, patch: Patch) -> None:
        """Submit a status patch for the pod. Ignores a deleted pod; logs other failures."""
        self._calls.submit(object_key(pod.metadata), lambda: self._patch(pod, patch))

    def evict(
        self, preemptor: Pod, preemption: Preemption, on_failure: Callable[[Pod], None]
    ) -> None:
        """Delete the victims that are not terminating yet.

        Calls `on_failure` with each victim whose deletion fails. A victim that is already gone
        counts as deleted.
        """
        for victim in preemption.victims:
            if victim.pod.metadata.deletion_timestamp is None:
                self._evict(victim.pod, preemptor, preemption.node_name, on_failure)

    def _evict(
        self, victim: Pod, preemptor: Pod, node_name: str, on_failure: Callable[[Pod], None]
    ) -> None:
        async def call() -> None:
            meta = victim.metadata
            try:
                if status.condition_of(victim, DISRUPTION_TARGET) is None:
                    await self._send(
                        victim, status.disrupted(victim, self._name, self._clock.now())
                    )
                await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
            except (NotFoundError, ConflictError):
                # Deleted or replaced by a pod of the same name: its resources are free either way.
                return
            except CallFailed as error:
                log.warning("victim not deleted", pod=object_key(meta), error=error)
                on_failure(victim)
                return
            self._record(
                victim,
                NORMAL,
                "Preempted",
                f"Preempted by pod {preemptor.metadata.uid} on node {node_name}",
            )

        self._calls.submit(object_key(victim.metadata), call)

    async def _patch(self, pod: Pod, patch: Patch) -> None:
        try:
            await self._send(pod, patch)
        except (NotFoundError, ConflictError):
            log.debug("pod went before its status was written", pod=object_key(pod.metadata))
        except CallFailed as error:
            log.warning("status not written", pod=object_key(pod.metadata), error=error)

    async def _send(self, pod: Pod, patch: Patch) -> None:
        await self._client.patch(
            PODS,
            pod.metadata.name,
            patch,
            pod.metadata.namespace,
            kind=PatchType.STRATEGIC,
            subresource="status",
        )

    def _record(self, pod: Pod, type_: str, reason: str, message: str) -> None:
        self._announcer.announce(reference(PODS, pod), type_, reason, message)
