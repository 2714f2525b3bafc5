"""Pod manager: one worker for each pod bound to this node.

Follows the pod informer, runs admission for new pods, and forwards changes that concern many pods:
of the engine's view, of classes, of handlers. Source: kubelet `syncLoopIteration`,
`HandlePodAdditions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from moorage.api.logs import Log
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.node.machine.node_object import NodeObject
from moorage.node.pod_facts.containers import TERMINAL
from moorage.node.pod_facts.sources import format_pod, from_api, is_mirror, is_static
from moorage.node.pods.admission import AdmissionInputs, refusal, shortage
from moorage.node.pods.context import NodeContext
from moorage.node.pods.worker import PodWorker
from moorage.node.status.inputs import TerminationReason
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import WARNING

log = Log(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class PodManager:
    """Pod workers by pod UID. `run()` starts them and blocks until cancelled."""

    def __init__(
        self,
        context: NodeContext,
        pods: Informer[Pod],
        node: NodeObject,
        make_worker: Callable[..., PodWorker] = PodWorker,
    ) -> None:
        self._make_worker = make_worker
        self._context = context
        self._pods = pods
        self._node = node
        self._workers: dict[str, PodWorker] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._listeners: list[Callable[[], None]] = []
        self._static: dict[str, Pod] = {}

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a function to call after a worker was added or removed. It must not block."""
        self._listeners.append(listener)

    def __iter__(self) -> Iterator[PodWorker]:
        return iter(list(self._workers.values()))

    @property
    def uids(self) -> Collection[str]:
        return self._workers.keys()

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """Return the worker of a pod by name; the newest of several."""
        workers = [
            worker
            for worker in self._workers.values()
            if (worker.pod.metadata.namespace, worker.pod.metadata.name) == (namespace, name)
        ]
        return max(
            workers, key=lambda worker: worker.pod.metadata.creation_timestamp or "", default=None
        )

    @property
    def static_pods(self) -> Collection[Pod]:
        """Return the static pods that are to run."""
        return self._static.values()

    def set_static(self, pods: Mapping[str, Pod]) -> None:
        """Set the static pods by UID: others are stopped, new ones start.

        One that has another's name starts when that one is gone. Source: kubelet `allowPodStart`.
        """
        self._static = dict(pods)
        self._settle_static()

    def _settle_static(self) -> None:
        if self._tasks is None:
            return
        static = [worker for worker in self._workers.values() if is_static(worker.pod)]
        names = {(worker.pod.metadata.namespace, worker.pod.metadata.name) for worker in static}
        for worker in static:
            if worker.uid not in self._static:
                worker.remove()
        for pod in self._static.values():
            if (pod.metadata.namespace, pod.metadata.name) not in names:
                self._add(pod)

    async def run(self) -> None:
        """Run a worker for every existing and new pod. The informer must be synced."""
        context = self._context
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            context.observer.add_listener(self._on_view)
            context.health.add_listener(self._on_engine)
            context.classes.on_change(self._on_class)
            self._settle_static()
            # Oldest first: admission gives precedence to older pods.
            for pod in sorted(
                self._pods, key=lambda other: other.metadata.creation_timestamp or ""
            ):
                self._add(from_api(pod))
            self._pods.add_handler(self._on_pod)
            self._settle_resizes()
            await asyncio.get_running_loop().create_future()

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            worker = self._workers.get(before.metadata.uid)
            if worker is not None:
                worker.remove()
        if after is None:
            return
        after = from_api(after)
        worker = self._workers.get(after.metadata.uid)
        if worker is not None:
            worker.update(after)
            self._settle_resizes()
        else:
            self._add(after)

    def _add(self, pod: Pod) -> None:
        if pod.metadata.uid in self._workers or is_mirror(pod):
            return
        is_taken_over = self._is_taken_over(pod)
        termination = None if is_taken_over else self._refusal(pod)
        if termination is not None:
            log.info("pod refused", pod=format_pod(pod), reason=termination.reason)
            self._context.events.pod(pod, WARNING, termination.reason, termination.message)
        record = self._context.allocations.read(pod.metadata.uid) if is_taken_over else None
        worker = self._make_worker(pod, self._context, refusal=termination, record=record)
        worker.on_over(self._settle)
        if worker.is_active and not is_taken_over:
            # A pod that the API shows as ended may still hold the room.
            why = self._shortage(pod)
            if why is not None:
                log.info("pod waits for room", pod=format_pod(pod), reason=why.reason)
                worker.wait_for_room(why)
        self._workers[pod.metadata.uid] = worker
        assert self._tasks is not None
        self._tasks.create_task(self._work(worker))
        self._announce()

    async def _work(self, worker: PodWorker) -> None:
        pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        has_ended = False
        try:
            while True:
                try:
                    await worker.run()
                except Exception as error:
                    # A bug in handling one pod must not end the others.
                    log.exception("pod's worker broke", pod=format_pod(worker.pod))
                    self._context.events.pod(
                        worker.pod, WARNING, "FailedSync", f"error handling the pod: {error}"
                    )
                    await self._context.clock.sleep(pauses.next_s())
                else:
                    has_ended = True
                    return
        finally:
            del self._workers[worker.uid]
            self._announce()
            if has_ended:
                self._settle_static()
            self._settle()

    def _announce(self) -> None:
        for listener in self._listeners:
            listener()

    def _is_taken_over(self, pod: Pod) -> bool:
        """Return whether this node has already admitted the pod, or admission no longer applies."""
        has_begun = not self._context.observer.view(pod.metadata.uid).is_empty
        is_over = pod.status.phase in TERMINAL or pod.metadata.deletion_timestamp is not None
        return has_begun or is_over

    def _settle(self) -> None:
        """Give released resources to waiting pods: new pods first, then resizes."""
        for worker in self._workers.values():
            if worker.is_waiting and self._shortage(worker.pod) is None:
                worker.grant_room()
        self._settle_resizes()

    def _settle_resizes(self) -> None:
        """Promise the pods that ask for other resources what fits now, the most urgent first.

        Counts pods that still end, and admitted ones that wait for their room.
        """
        waiting = [worker for worker in self._workers.values() if worker.wants_resize]
        for worker in sorted(waiting, key=lambda worker: worker.resizer.urgency):
            others = (other for other in self._workers.values() if other.is_active)
            why = refusal(worker.resizer.asked, self._inputs(worker.uid, others))
            if why is None:
                worker.grant_resize()
                self._announce()
            else:
                worker.defer_resize(why)

    def _refusal(self, pod: Pod) -> TerminationReason | None:
        """Return why the node refuses a pod; None if it is admitted.

        Counted are the pods that the scheduler counts: it may bind a pod as soon as the API shows
        its predecessor as ended, while this node still stops the predecessor's sandbox.
        """
        shown = (worker for worker in self._workers.values() if worker.is_shown)
        return refusal(pod, self._inputs(pod.metadata.uid, shown))

    def _shortage(self, pod: Pod) -> TerminationReason | None:
        """Return the reason why an admitted pod must wait; None if it can begin."""
        if all(worker.is_shown for worker in self._workers.values() if worker.is_active):
            return None
        return shortage(pod, self._inputs(pod.metadata.uid, self._present()))

    def _present(self) -> Iterator[PodWorker]:
        """Yield the workers of pods that use resources of this node, or may do so soon."""
        for worker in self._workers.values():
            if worker.is_active and not worker.is_waiting:
                yield worker

    def _inputs(self, uid: str, others: Iterable[PodWorker]) -> AdmissionInputs:
        """Return admission's view of the node for the pod of this UID."""
        return AdmissionInputs(
            node=self._node.node or Node(),
            allocatable=self._context.allocatable(),
            has_groups_policy=bool(self._context.health.has_groups_policy),
            others=[worker.pod for worker in others if worker.uid != uid],
            listeners=self._context.options.listeners,
            pressure=self._context.pressure.conditions,
            is_shutting_down=self._context.shutdown.is_begun,
        )

    def _on_view(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.wake()

    def _on_class(self, name: str) -> None:
        for worker in self._workers.values():
            if self._context.classes.named_by(worker.pod) == name:
                worker.retry_sandbox()

    def _on_engine(self) -> None:
        for worker in self._workers.values():
            worker.retry_sandbox()
