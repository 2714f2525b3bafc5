"""DaemonSet controller: keeps a pod of each set's template on each of its nodes.

A reconcile finds the set's revisions and pods, brings each node to one pod, goes on with a rolling
update if that left nothing to do (`planning`), and updates the status. It changes nothing until
its informers have shown its earlier requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.labels import from_object
from moorage.api.runtime_group import RuntimeClass
from moorage.api.workloads import ControllerRevision, DaemonSet, DaemonSetStatus
from moorage.controllers.daemonsets.placement import Fit, Placement, class_name
from moorage.controllers.daemonsets.planning import (
    HASH,
    FailedPods,
    Plan,
    PodsByNode,
    View,
    by_age,
    by_node,
    daemon_pod,
    placed,
    rolled,
    target_node,
)
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import Loop, key_of_either_forgetting
from moorage.controllers.objects import PODS, Node, Pod
from moorage.controllers.ownership import Claimer, sort_claims
from moorage.controllers.pods import (
    Failure,
    PodBatches,
    PodOwners,
    PodRequests,
    is_ready,
    next_available_s,
)
from moorage.controllers.requests import status_patch
from moorage.controllers.revisions import (
    History,
    RevisionOwners,
    RevisionRequests,
    expired,
    next_number,
    sort_history,
)
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import CONTROLLER_REVISIONS, DAEMON_SETS
from moorage.wire.client.rest import Client

_BURST = 250
_HISTORY_LIMIT = 10


class DaemonSetController:
    """Watches DaemonSets, nodes, pods, RuntimeClasses and revisions; creates and deletes pods."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._sets = informers.daemon_sets
        self._nodes = informers.nodes
        self._pods = informers.pods
        self._classes = informers.runtime_classes
        self._revisions = informers.revisions
        self._clock = clock
        self._expectations = Expectations(clock)
        self._revision_expectations = Expectations(clock)
        self._failed_pods = FailedPods(clock)
        self._pod_claimer = Claimer(client, DAEMON_SETS, PODS)
        self._revision_claimer = Claimer(client, DAEMON_SETS, CONTROLLER_REVISIONS)
        self._requests = PodRequests(client, recorder, DAEMON_SETS)
        self._batches = PodBatches(self._expectations)
        self._revision_requests = RevisionRequests(client, DAEMON_SETS, HASH)
        pod_owners = PodOwners(self._sets, self._expectations)
        revision_owners = RevisionOwners(self._sets, self._revision_expectations)
        self.run = Loop(
            "daemonsets",
            self._reconcile,
            [
                (self._sets, key_of_either_forgetting(self._forget)),
                (self._nodes, self._node_changed),
                (self._pods, pod_owners.pod_changed),
                (self._classes, self._class_changed),
                (self._revisions, revision_owners.revision_changed),
            ],
            clock,
        ).run

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[str]:
        """Yield all sets when a node comes, goes, or changes in what decides about its pods."""
        if before is not None and after is not None and _is_alike(before, after):
            return
        for daemon_set in self._sets:
            yield object_key(daemon_set.metadata)

    def _class_changed(
        self, before: RuntimeClass | None, after: RuntimeClass | None
    ) -> Iterator[str]:
        either = latest(before, after)
        for daemon_set in self._sets:
            if class_name(daemon_set.spec.template) == either.metadata.name:
                yield object_key(daemon_set.metadata)

    def _forget(self, key: str) -> None:
        self._expectations.forget(key)
        self._revision_expectations.forget(key)

    async def _reconcile(self, key: str) -> float | None:
        daemon_set = self._sets.get_key(key)
        if daemon_set is None:
            self._forget(key)
            return None
        if daemon_set.spec.selector == {}:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self._record(daemon_set, WARNING, "SelectingAll", message)
            return None
        # Of a set that is being deleted, the history may be gone before the pods.
        if daemon_set.metadata.deletion_timestamp is not None:
            return None
        unseen_s = self._revision_expectations.seconds_left(key)
        if unseen_s:
            return unseen_s
        # Read before the claims wait for the server, so that later arrivals are not counted as met.
        may_manage = self._expectations.are_met(key)
        pods = await self._claimed_pods(daemon_set)
        current, old, collisions = await self._history(key, daemon_set, pods)
        view = View(daemon_set, _hash_of(current), self._clock.now())
        fits = self._fits(daemon_set)
        failure: Failure | None = None
        wait_s: float | None = self._expectations.seconds_left(key) or None
        if may_manage:
            failure, wait_s = await self._manage(key, view, fits, pods)
        status = observed_status(view, fits, by_node(pods), collisions, is_handled=may_manage)
        await self._report(daemon_set, status)
        if failure is not None:
            raise failure
        await self._remove_expired(daemon_set, old, pods)
        next_s = next_available_s(pods, daemon_set.spec.min_ready_seconds, view.now)
        return min((wait for wait in (wait_s, next_s) if wait is not None), default=None)

    def _fits(self, daemon_set: DaemonSet) -> dict[str, Fit]:
        template = daemon_set.spec.template
        # Pods of a class that does not exist are refused, and the event of that says why.
        placement = Placement(template, self._classes.get(class_name(template)))
        return {node.metadata.name: placement.fit(node) for node in self._nodes}

    async def _claimed_pods(self, daemon_set: DaemonSet) -> list[Pod]:
        meta = daemon_set.metadata
        candidates = self._pods.by_index(NAMESPACE, meta.namespace)
        claims = sort_claims(meta, from_object(daemon_set.spec.selector), candidates)
        return await self._pod_claimer.claim(meta, claims)

    async def _history(
        self, key: str, daemon_set: DaemonSet, pods: Sequence[Pod]
    ) -> tuple[ControllerRevision, tuple[ControllerRevision, ...], int]:
        """Find or create the present template's revision.

        Returns it, the revisions of other templates, and the collision count.
        """
        meta, template = daemon_set.metadata, daemon_set.spec.template
        candidates = self._revisions.by_index(NAMESPACE, meta.namespace)
        claims = sort_claims(meta, from_object(daemon_set.spec.selector), candidates)
        history = sort_history(await self._revision_claimer.claim(meta, claims), template)
        collisions = daemon_set.status.collision_count or 0
        number = next_number(history.old)
        current = history.current
        if current is None:
            self._revision_expectations.expect_creations(key, 1)
            try:
                named = await self._revision_requests.create(meta, template, number, collisions)
            except BaseException:
                self._revision_expectations.forget(key)
                raise
            current, collisions = named.revision, named.collisions
            if self._revisions.get(current.metadata.name, meta.namespace) is not None:
                self._revision_expectations.forget(key)
        elif current.revision < number:
            current = await self._revision_requests.renumber(current, number)
        await self._remove_duplicates(history, current, pods)
        return current, history.old, collisions

    async def _remove_duplicates(
        self, history: History, current: ControllerRevision, pods: Sequence[Pod]
    ) -> None:
        """Leave one revision of the present template, and give its hash to the others' pods."""
        hashes = {_hash_of(revision) for revision in history.duplicates}
        for pod in pods:
            meta = pod.metadata
            if meta.labels.get(HASH) in hashes:
                patch = {"metadata": {"uid": meta.uid, "labels": {HASH: _hash_of(current)}}}
                await self._client.patch(PODS, meta.name, patch, meta.namespace)
        for revision in history.duplicates:
            await self._revision_requests.delete(revision)

    async def _manage(
        self, key: str, view: View, fits: dict[str, Fit], pods: Sequence[Pod]
    ) -> tuple[Failure | None, float | None]:
        """Create and delete pods. Returns the first failure and the seconds to wait, if any."""
        nodes = by_node(pods)
        plan = placed(view, fits, nodes)
        ended, wait_s = self._may_go(view.daemon_set, plan.ended)
        plan = Plan(plan.nodes, (*plan.deletions, *ended))
        if not (plan.nodes or plan.deletions):
            plan = rolled(view, fits, nodes)
        return await self._carry_out(key, view, plan), wait_s

    def _may_go(
        self, daemon_set: DaemonSet, ended: Sequence[Pod]
    ) -> tuple[list[Pod], float | None]:
        """Return the ended pods to delete now, and the seconds until the next may be."""
        going: list[Pod] = []
        waits: list[float] = []
        for pod in ended:
            meta, node = pod.metadata, target_node(pod) or ""
            name = f"{meta.namespace}/{meta.name}"
            if pod.status.phase == "Succeeded":
                message = f"Found succeeded daemon pod {name} on node {node}, will try to delete it"
                self._record(daemon_set, NORMAL, "SucceededDaemonPod", message)
                going.append(pod)
                continue
            key = (daemon_set.metadata.uid, daemon_set.status.observed_generation, node)
            wait_s = self._failed_pods.seconds_left(key)
            if wait_s:
                waits.append(wait_s)
                continue
            self._failed_pods.deleted(key)
            message = f"Found failed daemon pod {name} on node {node}, will try to kill it"
            self._record(daemon_set, WARNING, "FailedDaemonPod", message)
            going.append(pod)
        return going, min(waits, default=None)

    async def _carry_out(self, key: str, view: View, plan: Plan) -> Failure | None:
        nodes, deletions = plan.nodes[:_BURST], plan.deletions[:_BURST]
        if not (nodes or deletions):
            return None
        self._expectations.expect(
            key, creations=len(nodes), deletions={pod.metadata.uid for pod in deletions}
        )
        calls = [partial(self._create, view, node) for node in nodes]
        _, failure = await self._batches.create(key, calls)
        delete = partial(self._requests.delete, view.daemon_set)
        _, refused = await self._batches.delete(key, deletions, delete)
        return refused or failure

    async def _create(self, view: View, node: str) -> None:
        body = daemon_pod(view.daemon_set, node, view.hash)
        await self._requests.create(view.daemon_set, body)

    async def _remove_expired(
        self, daemon_set: DaemonSet, old: Sequence[ControllerRevision], pods: Sequence[Pod]
    ) -> None:
        hashes = {pod.metadata.labels.get(HASH) for pod in pods}
        live = {revision.metadata.name for revision in old if _hash_of(revision) in hashes}
        limit = daemon_set.spec.revision_history_limit
        limit = _HISTORY_LIMIT if limit is None else limit
        for revision in expired(old, live, limit, counts_live=True):
            await self._revision_requests.delete(revision)

    async def _report(self, daemon_set: DaemonSet, status: DaemonSetStatus) -> None:
        if status == daemon_set.status:
            return
        meta = daemon_set.metadata
        patch = status_patch(meta, daemon_set.status, status)
        # Zero is news here: a set without nodes says so.
        patch["status"] |= {
            "currentNumberScheduled": status.current_number_scheduled,
            "numberMisscheduled": status.number_misscheduled,
            "desiredNumberScheduled": status.desired_number_scheduled,
            "numberReady": status.number_ready,
        }
        try:
            await self._client.patch(
                DAEMON_SETS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile: there is nothing to report on.

    def _record(self, daemon_set: DaemonSet, type_: str, reason: str, message: str) -> None:
        self._recorder.record(reference(DAEMON_SETS, daemon_set), type_, reason, message)


def _hash_of(revision: ControllerRevision) -> str:
    """Return the hash that the revision's pods have as a label."""
    return revision.metadata.labels.get(HASH, revision.metadata.name)


def _is_alike(before: Node, after: Node) -> bool:
    return (
        before.metadata.labels == after.metadata.labels
        and before.spec.taints == after.spec.taints
        and before.status.runtime_handlers == after.status.runtime_handlers
    )


# Status of a DaemonSet. Source: apps/v1 `DaemonSetStatus`.


def observed_status(
    view: View, fits: Mapping[str, Fit], pods: PodsByNode, collisions: int, *, is_handled: bool
) -> DaemonSetStatus:
    """Compute the status from nodes and pods; on each node the oldest pod counts.

    `is_handled` is whether the present specification has been acted on.
    """
    daemon_set = view.daemon_set
    wanted = [node for node, fit in fits.items() if fit.gets_pod]
    first = [by_age(pods[node])[0] for node in wanted if pods.get(node)]
    ready = [pod for pod in first if is_ready(pod)]
    available = sum(map(view.is_available, ready))
    generation = daemon_set.metadata.generation
    return DaemonSetStatus(
        current_number_scheduled=len(first),
        number_misscheduled=sum(
            bool(pods.get(node)) for node, fit in fits.items() if not fit.gets_pod
        ),
        desired_number_scheduled=len(wanted),
        number_ready=len(ready),
        observed_generation=generation if is_handled else daemon_set.status.observed_generation,
        updated_number_scheduled=sum(map(view.is_new, first)),
        number_available=available,
        number_unavailable=len(wanted) - available,
        collision_count=collisions or daemon_set.status.collision_count,
        conditions=daemon_set.status.conditions,
    )
