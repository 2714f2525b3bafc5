"""Scheduling cycle: selects a node for one pod, or reports why none fits and what to preempt.

Pure except for its caches: it never blocks, reads a clock or calls the API server, so all
decisions between two events see one consistent cluster state.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice

from moorage.api.pods import Pod
from moorage.scheduler import messages, scores
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.equivalence_cache import EquivalenceCache, Remembered, remember
from moorage.scheduler.filters import (
    NODE_AFFINITY,
    RUNTIME_HANDLER,
    Rejection,
    fit,
    has_room,
    local_rejection,
    ports,
)
from moorage.scheduler.inter_pod_affinity import InterPodAffinity
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.preemption import Preemption, preempt
from moorage.scheduler.query import PodQuery
from moorage.scheduler.volume_checks import Blocked, VolumeCheck, VolumePlan, check_volumes
from moorage.wire.client.informer import object_key

_PLANNED_NODES = 40_000
"""Limit of cached templates times nodes; each such entry takes some 200 bytes."""
_FEWEST_PLANS = 4
_FEWEST_SCORED = 100
_MOST_SCORED = 200
_LEAST_SHARE = 5

NO_NODES_REASON = "NoNodes"


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The result when no node fits: the event message and the filters that rejected nodes.

    `preemption` makes room on a node for the pod, if possible; `ends_nomination` is set when an
    existing nomination can no longer succeed.
    """

    message: str
    rejected_by: frozenset[str]
    preemption: Preemption | None = None
    ends_nomination: bool = False


class Cycle:
    """Runs scheduling cycles against one cluster state, caching results per pod template."""

    def __init__(self, state: ClusterState, rng: random.Random | None = None) -> None:
        self._state = state
        self._rng = rng or random.Random()
        self._plans: OrderedDict[object, EquivalenceCache] = OrderedDict()
        self._next_start = 0

    def decide(self, pod: Pod, query: PodQuery) -> str | Unschedulable:
        """Select a node for a pod. Returns the node's name, or Unschedulable if no node fits.

        Hot path: some 20 µs a pod of a known template, whatever the number of nodes
        (bench/scheduler.py).
        """
        state = self._state
        if not state.nodes:
            return Unschedulable(messages.NO_NODES, frozenset({NO_NODES_REASON}))
        if query.missing_class:
            why = f'RuntimeClass "{query.missing_class}" not found'
            return self._ruled_out(why, RUNTIME_HANDLER)
        if query.named_nodes is not None and not query.named_nodes:
            return self._ruled_out("pod affinity terms conflict", NODE_AFFINITY)
        volumes = check_volumes(pod, state.storage, state.nodes)
        if isinstance(volumes, Blocked):
            return self._ruled_out(volumes.message, volumes.filter)
        plan = self._plan(pod, query)
        plan.refresh()
        choice = self._nominated(pod, plan, volumes) or self._choose(pod, plan, volumes)
        return choice if choice is not None else self._fail(pod, plan, volumes)

    def volume_plan(self, pod: Pod, node_name: str) -> VolumePlan:
        """Return the volumes to bind before the pod, for the node just chosen for it."""
        state = self._state
        volumes = check_volumes(pod, state.storage, state.nodes)
        if isinstance(volumes, VolumeCheck):
            return volumes.plan(state.nodes[node_name])
        return VolumePlan()

    # choosing

    def _plan(self, pod: Pod, query: PodQuery) -> EquivalenceCache:
        state = self._state
        needs_cross = query.terms.has_affinity or query.terms.has_spread or bool(query.owner_uid)
        key: object = (query, state.namespace_version) if query.terms.has_affinity else query
        if state.affine_count:
            # Other pods' terms may select this pod, by labels that its template key leaves out.
            meta = pod.metadata
            labels = tuple(sorted(meta.labels.items()))
            key = (query, meta.namespace, labels, state.namespace_version)
            needs_cross = True
        plan = self._plans.get(key)
        if plan is None:
            cross = InterPodAffinity(pod, query, state) if needs_cross else None
            plan = self._plans[key] = EquivalenceCache(query, state, cross, self._rng)
            while len(self._plans) > max(_FEWEST_PLANS, _PLANNED_NODES // len(state.nodes)):
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return plan

    def _nominated(
        self, pod: Pod, plan: EquivalenceCache, volumes: VolumeCheck | None
    ) -> str | None:
        """Return the pod's nominated node if the pod fits there now; None otherwise."""
        name = self._state.nomination_of(pod)
        if not name or name not in plan.local:
            return None
        node = self._state.nodes[name]
        if plan.cross is not None and plan.cross.rejection(node) is not None:
            return None
        if volumes is not None and volumes.rejection(node) is not None:
            return None
        return name if self._is_free(pod, plan.query, name) else None

    def _choose(self, pod: Pod, plan: EquivalenceCache, volumes: VolumeCheck | None) -> str | None:
        is_free = self._freedom(pod, plan.query, volumes)
        cross = plan.cross
        if cross is None or not (cross.can_reject or cross.can_score):
            return plan.best(is_free)
        return self._choose_crosswise(plan, cross, is_free)

    def _choose_crosswise(
        self, plan: EquivalenceCache, cross: InterPodAffinity, is_free: Callable[[str], bool] | None
    ) -> str | None:
        """Return the highest-scored of a sample of the feasible nodes; None if there is none.

        Applies inter-pod affinity and topology spread. The search starts where the last one ended.
        """
        nodes = self._state.nodes
        names = list(plan.local)
        if not names:
            return None
        start = self._next_start % len(names)
        enough = sample_size(len(nodes))
        sample: list[NodeInfo] = []
        may_reject = cross.can_reject
        passed = 0
        for name in chain(islice(names, start, None), islice(names, start)):
            passed += 1
            node = nodes[name]
            if may_reject and cross.rejection(node) is not None:
                continue
            if is_free is not None and not is_free(name):
                continue
            sample.append(node)
            if len(sample) == enough:
                break
        self._next_start = (start + passed) % len(names)
        return self._highest(plan, cross, sample) if sample else None

    def _highest(
        self, plan: EquivalenceCache, cross: InterPodAffinity, sample: list[NodeInfo]
    ) -> str:
        spread = cross.spread_scores(sample)
        near = cross.affinity_scores(sample)
        totals = [
            plan.local[node.name]
            + scores.SPREAD_WEIGHT * spread[index]
            + scores.INTER_POD_AFFINITY_WEIGHT * near[index]
            for index, node in enumerate(sample)
        ]
        highest = max(totals)
        best = [node.name for node, total in zip(sample, totals, strict=True) if total == highest]
        return self._rng.choice(best)

    def _freedom(
        self, pod: Pod, query: PodQuery, volumes: VolumeCheck | None
    ) -> Callable[[str], bool] | None:
        """Return a check that a node is not kept for other pods and can use the pod's volumes."""
        nodes, has_nominations = self._state.nodes, self._state.has_nominations
        if volumes is None:
            return (lambda name: self._is_free(pod, query, name)) if has_nominations else None
        return lambda name: (
            volumes.rejection(nodes[name]) is None
            and (not has_nominations or self._is_free(pod, query, name))
        )

    def _is_free(self, pod: Pod, query: PodQuery, name: str) -> bool:
        """Return whether the pod fits on the node together with the pods nominated to it."""
        crowded = self._with_nominated(pod, self._state.nodes[name])
        return crowded is None or has_room(query, crowded)

    def _with_nominated(self, pod: Pod, node: NodeInfo) -> NodeInfo | None:
        """Return a copy of the node with its nominated pods of equal or higher priority added.

        Returns None if there is no such pod; the pod itself is left out.
        """
        key, priority = object_key(pod.metadata), pod.spec.priority or 0
        waiting = [
            nominated
            for nominated in self._state.nominated_on(node.name)
            if nominated.key != key
            and nominated.priority >= priority
            and nominated.key not in node.pods
        ]
        if not waiting:
            return None
        crowded = node.copy()
        for entry in waiting:
            crowded.add(entry)
        return crowded

    # failing

    def _ruled_out(self, why: str, filter_name: str) -> Unschedulable:
        count = len(self._state.nodes)
        conclusion = messages.after_preemption(
            messages.unavailable(count, {messages.NOT_HELPFUL: count})
        )
        message = messages.unavailable_anywhere(count, why, conclusion)
        return Unschedulable(message, frozenset({filter_name}), ends_nomination=True)

    def _fail(self, pod: Pod, plan: EquivalenceCache, volumes: VolumeCheck | None) -> Unschedulable:
        memory = self._remembered(pod, plan, volumes)
        rejections = memory.rejections
        count = len(self._state.nodes)
        reasons, rejected_by = memory.reasons, memory.rejected_by
        kind = (pod.spec.priority or 0, pod.spec.preemption_policy or "")
        known = memory.preemption_messages.get(kind)
        is_nominated = bool(self._state.nomination_of(pod))
        if known is not None and not is_nominated:
            conclusion = messages.after_preemption(known)
            return Unschedulable(messages.unavailable(count, reasons, conclusion), rejected_by)
        outcome = preempt(pod, plan.query, self._state, plan.cross, rejections, self._rng, volumes)
        if isinstance(outcome, Preemption):
            return Unschedulable(
                messages.unavailable(count, reasons), rejected_by, preemption=outcome
            )
        if not is_nominated:
            memory.preemption_messages[kind] = outcome.message
        return Unschedulable(
            messages.unavailable(count, reasons, messages.after_preemption(outcome.message)),
            rejected_by,
            ends_nomination=outcome.is_hopeless,
        )

    def _remembered(
        self, pod: Pod, plan: EquivalenceCache, volumes: VolumeCheck | None
    ) -> Remembered:
        """Return every node's rejection, cached per template until the cluster state changes.

        Nominations and claims are of one pod, not of its template.
        """
        generation = self._state.generation
        is_of_template = not self._state.has_nominations and volumes is None
        if plan.failure is not None and plan.failure.generation == generation and is_of_template:
            return plan.failure
        memory = remember(
            generation,
            {
                name: self._objection(pod, plan, node, volumes)
                for name, node in self._state.nodes.items()
            },
        )
        if volumes is None:
            plan.failure = memory if is_of_template else None
        return memory

    def _objection(
        self, pod: Pod, plan: EquivalenceCache, node: NodeInfo, volumes: VolumeCheck | None
    ) -> Rejection:
        query = plan.query
        rejection = plan.standing(node).rejection or ports(query, node) or fit(query, node)
        if rejection is None and volumes is not None:
            rejection = volumes.rejection(node)
        if rejection is None and plan.cross is not None:
            rejection = plan.cross.rejection(node)
        if rejection is None:
            crowded = self._with_nominated(pod, node)
            rejection = local_rejection(query, crowded) if crowded is not None else None
        if rejection is None:
            raise AssertionError(f"node {node.name} was passed over without a reason")
        return rejection


def sample_size(node_count: int) -> int:
    """Return how many feasible nodes to score: all up to 100, then a falling share, at most 200.

    The share is kube-scheduler's default percentageOfNodesToScore; the upper bound is ours, to
    limit the time of a decision.
    """
    share = max(50 - node_count // 125, _LEAST_SHARE)
    wanted = min(max(node_count * share // 100, _FEWEST_SCORED), _MOST_SCORED)
    return min(node_count, wanted)
