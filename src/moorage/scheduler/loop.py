"""Scheduling loop: informer events in, decisions, API calls out.

Informer events update the cluster state and requeue pods. One task pops pods from the queue and
decides without awaiting in between, so a decision never sees half an event; API calls run
concurrently. Nothing polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from moorage.api.clock import Clock
from moorage.api.disruptions import PodDisruptionBudget
from moorage.api.logs import Log
from moorage.api.names import Namespace
from moorage.api.nodes import Node
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.scheduler import hints, messages, status
from moorage.scheduler.actions import Actions
from moorage.scheduler.api_dispatcher import ApiDispatcher
from moorage.scheduler.cluster_state import ClusterState, occupies_node
from moorage.scheduler.cycle import Cycle, Unschedulable
from moorage.scheduler.event_buffer import EventBuffer
from moorage.scheduler.filters import RUNTIME_HANDLER
from moorage.scheduler.informers import SchedulerInformers
from moorage.scheduler.metrics import ERROR, SCHEDULED, UNSCHEDULABLE, SchedulerMetrics
from moorage.scheduler.nodes import NodeInfo, Placed
from moorage.scheduler.options import SchedulerOptions
from moorage.scheduler.preemption import Preemption
from moorage.scheduler.query import PodQuery, QueryCache
from moorage.scheduler.queue import Hint, Place, SchedulingQueue, Waiting
from moorage.scheduler.storage_events import StorageEvents
from moorage.scheduler.volume_binding import VolumeBinder, VolumeBindingError
from moorage.scheduler.volume_checks import VolumePlan
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.rest import Client

log = Log(__name__)

_DECISIONS_A_TURN = 16
"""Number of decisions after which the loop yields to other tasks."""


async def run_scheduler(
    client: Client,
    options: SchedulerOptions,
    clock: Clock,
    *,
    informers: SchedulerInformers | None = None,
    metrics: SchedulerMetrics | None = None,
) -> None:
    """Schedule pods until cancelled.

    The caller runs the `informers` it passes; without them the scheduler creates and runs its own.
    """
    own = None if informers is not None else SchedulerInformers.of(client, clock)
    followed = informers or own
    assert followed is not None
    recorder = EventRecorder(client, options.name, clock=clock)
    announcer = EventBuffer(recorder)
    calls = ApiDispatcher(options.workers)
    actions = Actions(client, announcer, calls, clock, name=options.name)
    binder = VolumeBinder(client, clock, longest_wait_s=options.longest_volume_wait_s)
    measured = metrics or SchedulerMetrics(options.name)
    scheduler = Scheduler(followed, actions, binder, calls, options, clock, measured)
    async with asyncio.TaskGroup() as tasks:
        for informer in own.all if own is not None else ():
            tasks.create_task(informer.run())
        for _ in range(options.event_senders):
            tasks.create_task(recorder.run())
        tasks.create_task(announcer.run())
        tasks.create_task(calls.run())
        tasks.create_task(scheduler.run())


class Scheduler:
    """Connects informers, cluster state, queue and API calls. Await `run` in a task group.

    `state` is what decisions are based on, `queue` holds the pods that wait for one.
    """

    def __init__(
        self,
        informers: SchedulerInformers,
        actions: Actions,
        binder: VolumeBinder,
        calls: ApiDispatcher,
        options: SchedulerOptions,
        clock: Clock,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._informers = informers
        self._actions = actions
        self._calls = calls
        self._options = options
        self._clock = clock
        self._queries = QueryCache(filters_by_handler=options.filters_by_handler)
        self.state = ClusterState(self._queries, binder.storage)
        self._binder = binder
        self._cycle = Cycle(self.state)
        self.queue = SchedulingQueue(
            clock,
            first_backoff_s=options.first_backoff_s,
            longest_backoff_s=options.longest_backoff_s,
            longest_wait_s=options.longest_wait_s,
        )
        self._storage = StorageEvents(self.queue, binder)
        self._gated: set[str] = set()
        self._metrics = metrics or SchedulerMetrics(options.name)
        self._metrics.follow(self._pending)

    async def run(self) -> None:
        """Block until the informers have synced, then schedule until cancelled."""
        for informer in self._informers.all:
            await informer.wait_synced()
        self.follow()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.queue.run())
            tasks.create_task(self._decide_for_ever(tasks))

    def follow(self) -> None:
        """Update the state and the queue by what the informers have and by what they receive."""
        informers = self._informers
        # Nodes before pods: a pod must not be tried before the nodes are known.
        informers.namespaces.add_handler(self._on_namespace)
        informers.runtime_classes.add_handler(self._on_class)
        informers.disruption_budgets.add_handler(self._on_disruption_budget)
        informers.storage_classes.add_handler(self._storage.on_class)
        informers.volumes.add_handler(self._storage.on_volume)
        informers.claims.add_handler(self._storage.on_claim)
        informers.nodes.add_handler(self._on_node)
        informers.pods.add_handler(self._on_pod)

    async def _decide_for_ever(self, tasks: asyncio.TaskGroup) -> None:
        decisions = 0
        while True:
            if not self.schedule_one(tasks):
                await self.queue.wait()
                continue
            decisions += 1
            if decisions % _DECISIONS_A_TURN == 0:
                await asyncio.sleep(0)
            await self._calls.room()

    def _pending(self) -> dict[str, int]:
        """Return the number of waiting pods by kind of queue. Pods being bound are in none."""
        counts = self.queue.counts()
        return {
            "active": counts[Place.ACTIVE],
            "backoff": counts[Place.BACKOFF],
            "unschedulable": counts[Place.PARKED],
            "gated": len(self._gated),
        }

    # decisions

    def schedule_one(self, tasks: asyncio.TaskGroup) -> bool:
        """Try the queue's next pod; return False if none is due. Volumes are bound in `tasks`."""
        entry = self.queue.take()
        if entry is None:
            return False
        pod = entry.pod
        query = self._queries.of_waiting(pod, self._informers.runtime_classes.get)
        outcome = self._cycle.decide(pod, query)
        if isinstance(outcome, Unschedulable):
            self._give_up_for_now(entry, query, outcome)
        else:
            plan = self._place(entry, query, outcome)
            if plan:
                tasks.create_task(self._bind_with_volumes(entry, outcome, plan))
            else:
                self._bind(entry, outcome)
        return True

    def _place(self, entry: Waiting, query: PodQuery, node_name: str) -> VolumePlan:
        """Count the pod on its node; return and reserve what its claims need there."""
        plan = self._cycle.volume_plan(entry.pod, node_name)
        self.state.storage.reserve(plan.reserved, plan.selected, node_name)
        self.state.assume(entry.pod, query, node_name)
        self._wake(hints.pod_placed())
        self._end_nomination(entry.key, node_name)
        return plan

    def _bind(self, entry: Waiting, node_name: str) -> None:
        self._actions.bind(
            entry.pod, node_name, lambda message: self._not_bound(entry, node_name, message)
        )

    async def _bind_with_volumes(self, entry: Waiting, node_name: str, plan: VolumePlan) -> None:
        """Bind the claims, which may take a provisioner minutes, and then the pod."""

        def node_labels() -> Mapping[str, str] | None:
            node = self.state.nodes.get(node_name)
            return None if node is None else node.labels

        def is_wanted() -> bool:
            return (
                self.queue.get(entry.key) is entry and entry.pod.metadata.deletion_timestamp is None
            )

        try:
            if await self._binder.bind(plan, node_name, node_labels, is_wanted):
                self._bind(entry, node_name)
                return
        except VolumeBindingError as error:
            log.warning("volumes not bound", pod=entry.key, node=node_name, error=error)
            self._not_bound(entry, node_name, str(error))
            return
        # The pod is being deleted, or is gone.
        if self.state.forget(entry.key):
            self._wake(hints.room_freed(self.state.nodes.get(node_name)))
        if self.queue.get(entry.key) is entry:
            self.queue.remove(entry.key)

    def _not_bound(self, entry: Waiting, node_name: str, message: str) -> None:
        """Release the node's resources after a failed binding and retry the pod with backoff."""
        self._count(entry, ERROR)
        if self.state.forget(entry.key):
            self._wake(hints.room_freed(self.state.nodes.get(node_name)))
        if self.queue.get(entry.key) is not entry:
            return
        if entry.pod.metadata.deletion_timestamp is not None:
            self.queue.remove(entry.key)
            return
        self._actions.report_failure(entry.pod, message)
        self._report(entry, status.SCHEDULER_ERROR, message)
        self.queue.retry(entry)

    def _give_up_for_now(self, entry: Waiting, query: PodQuery, outcome: Unschedulable) -> None:
        self._count(entry, UNSCHEDULABLE)
        self._actions.report_failure(entry.pod, outcome.message)
        if query.handler and outcome.rejected_by == {RUNTIME_HANDLER}:
            self._actions.report_unknown_handler(entry.pod, query.handler)
        if outcome.preemption is not None:
            self._preempt(entry, query, outcome.preemption, outcome.message)
        elif outcome.ends_nomination and self.state.nomination_of(entry.pod):
            freed = self.state.withdraw(entry.key)
            self._report(entry, status.UNSCHEDULABLE, outcome.message, nominates=True)
            if freed:
                self._wake(hints.room_freed(self.state.nodes.get(freed)))
        else:
            self._report(entry, status.UNSCHEDULABLE, outcome.message)
        self.queue.park(entry, outcome.rejected_by, query)
        self._storage.parked(entry, outcome.rejected_by)

    def _preempt(
        self, entry: Waiting, query: PodQuery, preemption: Preemption, message: str
    ) -> None:
        node_name = preemption.node_name
        for weaker in self._weaker_nominations(entry, node_name):
            self._withdraw(weaker)
        self.state.nominate(entry.pod, query, node_name)
        self._report(entry, status.UNSCHEDULABLE, message, nominates=True, node_name=node_name)
        for victim in preemption.victims:
            self.state.set_leaving(victim.key)
        self._actions.evict(entry.pod, preemption, lambda victim: self._not_evicted(entry, victim))

    def _count(self, entry: Waiting, result: str) -> None:
        self._metrics.attempted(result, self._clock.monotonic() - entry.attempted_at)

    def _count_start(self, entry: Waiting) -> None:
        name = entry.pod.spec.runtime_class_name or ""
        known = self._informers.runtime_classes.get(name) if name else None
        handler = "" if known is None else known.handler
        self._metrics.scheduled(name, handler, self._clock.monotonic() - entry.since)

    def _not_evicted(self, entry: Waiting, victim: Pod) -> None:
        self.state.set_leaving(object_key(victim.metadata), is_leaving=False)
        self.queue.promote(entry)

    def _end_nomination(self, key: str, home: str) -> None:
        """Remove a placed pod's nomination; if to another node, requeue pods that fit there."""
        kept = self.state.withdraw(key)
        if kept is not None and kept != home:
            self._wake(hints.room_freed(self.state.nodes.get(kept)))

    def _weaker_nominations(self, entry: Waiting, node_name: str) -> list[Placed]:
        return [
            nominated
            for nominated in self.state.nominated_on(node_name)
            if nominated.priority < entry.priority
        ]

    def _withdraw(self, weaker: Placed) -> None:
        """Remove the nomination of a lower-priority pod and requeue that pod."""
        self.state.withdraw(weaker.key)
        patch = status.with_nomination(status.no_change(weaker.pod), None)
        self._actions.patch_status(weaker.pod, patch)
        waiting = self.queue.get(weaker.key)
        if waiting is not None:
            # The informer shows the nomination until the patch is written.
            waiting.pod = status.without_nomination(waiting.pod)
            self.queue.promote(waiting)

    def _report(
        self,
        entry: Waiting,
        reason: str,
        message: str,
        *,
        nominates: bool = False,
        node_name: str | None = None,
    ) -> None:
        """Patch the PodScheduled condition, and the nominated node if `nominates` is set.

        An unchanged condition is not written again.
        """
        if entry.reported == (reason, message) and not nominates:
            return
        entry.reported = (reason, message)
        shown = status.condition_of(entry.pod, status.POD_SCHEDULED)
        if (
            shown is not None
            and (shown.status, shown.reason, shown.message) == ("False", reason, message)
            and not nominates
        ):
            return
        patch = status.not_scheduled(entry.pod, reason, message, self._clock.now())
        if nominates:
            patch = status.with_nomination(patch, node_name)
        self._actions.patch_status(entry.pod, patch)

    def _wake(self, hint: Hint) -> None:
        self.queue.wake_if(hint)

    # events

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if after is None:
            assert before is not None
            self.state.remove_node(before.metadata.name)
            self._wake(hints.node_gone())
        elif self.state.set_node(after):
            info = self.state.nodes[after.metadata.name]
            known = NodeInfo(before) if before is not None else None
            self._wake(hints.node_changed(known, info))

    def _on_class(self, before: RuntimeClass | None, after: RuntimeClass | None) -> None:
        if after is not None and (before is None or before.handler != after.handler):
            self._wake(hints.class_changed(after.metadata.name))

    def _on_namespace(self, before: Namespace | None, after: Namespace | None) -> None:
        known = after or before
        assert known is not None
        labels = after.metadata.labels if after is not None else None
        if self.state.set_namespace(known.metadata.name, labels):
            self._wake(hints.namespace_changed())

    def _on_disruption_budget(
        self, before: PodDisruptionBudget | None, after: PodDisruptionBudget | None
    ) -> None:
        if after is not None:
            self.state.disruption_budgets.put(after)
        elif before is not None:
            self.state.disruption_budgets.remove(before)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (after is None or before.metadata.uid != after.metadata.uid):
            self._gone(before)
            before = None
        if after is None:
            return
        if after.spec.node_name:
            self._bound(before, after)
        else:
            self._unbound(before, after)

    def _gone(self, pod: Pod) -> None:
        key = object_key(pod.metadata)
        self.queue.remove(key)
        self._storage.pod_gone(key, pod)
        self._gated.discard(key)
        home = self.state.home_of(key)
        self.state.remove_pod(pod)
        for node_name in {home, self.state.withdraw(key)} - {None}:
            self._wake(hints.room_freed(self.state.nodes.get(node_name or "")))

    def _bound(self, before: Pod | None, after: Pod) -> None:
        key = object_key(after.metadata)
        if not occupies_node(after):
            self._gone(after)
            return
        entry = self.queue.get(key)
        if entry is not None and entry.place is Place.TAKEN:
            self._count(entry, SCHEDULED)
            self._count_start(entry)
        self.queue.remove(key)
        self._gated.discard(key)
        self._end_nomination(key, after.spec.node_name)
        was_counted = self.state.home_of(key) == after.spec.node_name
        self.state.set_pod(after)
        if not was_counted or (
            before is not None and before.metadata.labels != after.metadata.labels
        ):
            self._wake(hints.pod_placed())
        if before is not None and before.spec.node_name and before.spec != after.spec:
            self._wake(hints.room_freed(self.state.nodes.get(after.spec.node_name)))

    def _unbound(self, before: Pod | None, after: Pod) -> None:
        key = object_key(after.metadata)
        if (
            after.spec.scheduler_name != self._options.name
            or after.metadata.deletion_timestamp is not None
            or after.status.phase in ENDED_PHASES
        ):
            self._drop_unscheduled(key, after)
            return
        if after.spec.scheduling_gates:
            self._gated.add(key)
            self._gate(after)
            return
        self._gated.discard(key)
        entry = self.queue.get(key)
        if entry is None:
            self.queue.add(after)
            self._renominate(after)
        else:
            entry.pod = after
            if before is not None and (
                before.spec != after.spec or before.metadata.labels != after.metadata.labels
            ):
                self.queue.promote(entry)

    def _drop_unscheduled(self, key: str, pod: Pod) -> None:
        """Drop a pod that is not, or no longer, ours; keep an assumed one until it is bound."""
        entry = self.queue.get(key)
        if entry is not None and self.state.is_assumed(key):
            entry.pod = pod
            self._storage.pod_gone(key, pod)
        else:
            self._gone(pod)

    def _gate(self, pod: Pod) -> None:
        shown = status.condition_of(pod, status.POD_SCHEDULED)
        if shown is not None and shown.reason == status.SCHEDULING_GATED:
            return
        self._actions.patch_status(
            pod,
            status.not_scheduled(pod, status.SCHEDULING_GATED, messages.GATED, self._clock.now()),
        )

    def _renominate(self, pod: Pod) -> None:
        """Restore the nomination in a pod's status, as after a restart of the scheduler."""
        node_name = pod.status.nominated_node_name
        if node_name:
            query = self._queries.of_waiting(pod, self._informers.runtime_classes.get)
            self.state.nominate(pod, query, node_name)
