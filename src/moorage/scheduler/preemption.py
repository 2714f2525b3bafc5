"""Preemption: selects victims to evict so that a pod of higher priority can run.

Pure: removes pods from a copy of the node and reprieves as many as possible, those first whose
disruption budget is used up. Source: kube-scheduler DefaultPreemption.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.api.disruptions import DISRUPTION_TARGET
from moorage.api.pods import Pod
from moorage.scheduler import messages
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.filters import Rejection, local_rejection
from moorage.scheduler.inter_pod_affinity import InterPodAffinity
from moorage.scheduler.nodes import NodeInfo, Placed
from moorage.scheduler.query import PodQuery
from moorage.scheduler.volume_checks import VolumeCheck

PREEMPTED = "PreemptionByScheduler"
_CANDIDATE_SHARE = 10
_FEWEST_CANDIDATES = 100
_NOT_STARTED = "9999"
_LEAST_PRIORITY = -(2**31)

_NO_VICTIMS = Rejection("DefaultPreemption", (messages.NO_VICTIMS,))


@dataclass(frozen=True, slots=True)
class Preemption:
    """The node to nominate and the victims on it, most important first.

    `violations` is how many of them their disruption budgets would spare.
    """

    node_name: str
    victims: tuple[Placed, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """The reason why no pod is preempted; `is_hopeless` ends an existing nomination."""

    message: str
    is_hopeless: bool = False


def preempt(
    pod: Pod,
    query: PodQuery,
    state: ClusterState,
    cross: InterPodAffinity | None,
    rejections: Mapping[str, Rejection],
    rng: random.Random,
    volumes: VolumeCheck | None = None,
) -> Preemption | NoPreemption:
    """Return the candidate node with the lowest cost, or NoPreemption with the reason.

    `rejections` holds each node's rejection of the failed attempt; `cross` must be refreshed.
    """
    refusal = _ineligible(pod, state, rejections)
    if refusal:
        return NoPreemption(refusal)
    hopeful = [name for name, rejection in rejections.items() if rejection.is_resolvable]
    preemptions, failed = dry_run(pod, query, state, cross, hopeful, rng, volumes)
    if preemptions:
        return min(preemptions, key=_cost)
    reasons = messages.histogram(failed)
    hopeless = len(state.nodes) - len(failed)
    if hopeless:
        reasons[messages.NOT_HELPFUL] += hopeless
    return NoPreemption(messages.unavailable(len(state.nodes), reasons), is_hopeless=True)


def _ineligible(pod: Pod, state: ClusterState, rejections: Mapping[str, Rejection]) -> str:
    if pod.spec.preemption_policy == "Never":
        return messages.NEVER_PREEMPTS
    nominated = state.nodes.get(state.nomination_of(pod))
    if nominated is None:
        return ""
    rejection = rejections.get(nominated.name)
    if rejection is not None and not rejection.is_resolvable:
        return ""
    priority = pod.spec.priority or 0
    is_waiting = any(
        entry.priority < priority and (state.is_leaving(entry.key) or _is_leaving_for_us(entry.pod))
        for entry in nominated.pods.values()
    )
    return messages.VICTIM_LEAVING if is_waiting else ""


def _is_leaving_for_us(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    return any(
        condition.type == DISRUPTION_TARGET
        and condition.status == "True"
        and condition.reason == PREEMPTED
        for condition in pod.status.conditions
    )


def dry_run(
    pod: Pod,
    query: PodQuery,
    state: ClusterState,
    cross: InterPodAffinity | None,
    names: Sequence[str],
    rng: random.Random,
    volumes: VolumeCheck | None = None,
) -> tuple[list[Preemption], list[Rejection]]:
    """Collect candidates, starting at a random node, until there are enough.

    Returns the candidates and the rejections of nodes where preemption does not help.
    """
    preemptions: list[Preemption] = []
    failed: list[Rejection] = []
    if not names:
        return preemptions, failed
    enough = max(len(names) * _CANDIDATE_SHARE // 100, _FEWEST_CANDIDATES)
    start = rng.randrange(len(names))
    for name in (*names[start:], *names[:start]):
        outcome = victims_on(pod, query, state, cross, state.nodes[name], volumes)
        if isinstance(outcome, Rejection):
            failed.append(outcome)
            continue
        preemptions.append(outcome)
        if len(preemptions) >= enough:
            break
    return preemptions, failed


def victims_on(
    pod: Pod,
    query: PodQuery,
    state: ClusterState,
    cross: InterPodAffinity | None,
    node: NodeInfo,
    volumes: VolumeCheck | None = None,
) -> Preemption | Rejection:
    """Return the pods to evict from this node, as few and unimportant as possible.

    Pods whose budget is used up are spared first. Returns the remaining Rejection if evicting all
    pods of lower priority does not help.
    """
    priority = pod.spec.priority or 0
    weaker = sorted(
        (entry for entry in node.pods.values() if entry.priority < priority), key=_importance
    )
    if not weaker:
        return _NO_VICTIMS
    trial = node.copy()
    for waiting in state.nominated_on(node.name):
        is_other = waiting.pod.metadata.uid != pod.metadata.uid
        if is_other and waiting.priority >= priority and waiting.key not in trial.pods:
            trial.add(waiting)
    for victim in weaker:
        trial.remove(victim.key)
    try:
        objection = _objection(query, trial, cross, volumes)
        if objection is not None:
            return objection
        protected = state.disruption_budgets.violated_by(weaker)
        victims: list[Placed] = []
        for victim in sorted(weaker, key=lambda entry: entry.key not in protected):
            trial.add(victim)
            if _objection(query, trial, cross, volumes) is not None:
                trial.remove(victim.key)
                victims.append(victim)
        if not victims:
            return _NO_VICTIMS
        violations = sum(victim.key in protected for victim in victims)
        return Preemption(node.name, tuple(sorted(victims, key=_importance)), violations)
    finally:
        if cross is not None:
            cross.put(node.name, node)


def _objection(
    query: PodQuery,
    trial: NodeInfo,
    cross: InterPodAffinity | None,
    volumes: VolumeCheck | None,
) -> Rejection | None:
    objection = local_rejection(query, trial)
    if objection is None and volumes is not None:
        objection = volumes.rejection(trial)
    if objection is not None or cross is None:
        return objection
    cross.put(trial.name, trial)
    return cross.rejection(trial)


def _importance(pod: Placed) -> tuple[int, str]:
    """Return the sort key that puts the most important first: priority, then earliest start."""
    return -pod.priority, pod.pod.status.start_time or _NOT_STARTED


def _cost(candidate: Preemption) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Return the sort key that puts the cheapest candidate first.

    Order: fewest violated budgets, lowest highest priority, lowest sum of priorities, fewest
    victims, latest start time.
    """
    victims = candidate.victims
    highest = max(victim.priority for victim in victims)
    started = min(
        victim.pod.status.start_time or _NOT_STARTED
        for victim in victims
        if victim.priority == highest
    )
    return (
        candidate.violations,
        highest,
        sum(victim.priority - _LEAST_PRIORITY for victim in victims),
        len(victims),
        tuple(-ord(character) for character in started),
    )
