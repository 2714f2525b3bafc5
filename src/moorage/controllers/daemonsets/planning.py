"""Plan of a DaemonSet: the nodes that need a pod, and the pods that go.

Nodes are brought to one pod each first (`placed`). When nothing is left to do there, a rolling
update goes on: without surge it deletes old pods, and their nodes get new ones; with surge it
creates new pods beside the old ones, which go when the new ones are available. Source: API docs
"Perform a Rolling Update on a DaemonSet", KEP-1591 (surge), `daemon/update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.api.clock import Clock
from moorage.api.meta import Raw
from moorage.api.workloads import DaemonSet
from moorage.controllers.daemonsets.placement import NO_FIT, Fit, daemon_tolerations
from moorage.controllers.objects import Pod
from moorage.controllers.pods import (
    is_deleting,
    is_ended,
    is_ready,
    pod_of,
    seconds_until_available,
)
from moorage.controllers.templates import scaled
from moorage.wire.client.resources import DAEMON_SETS

# Daemon pods: how one is made for a node, and which node one is for.
#
# A pod is bound by the scheduler; required node affinity with the node's name leaves it no choice.
# Source: `daemonset_util`.

HASH = "controller-revision-hash"
GENERATION = "pod-template-generation"
_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
_NAME_FIELD = "metadata.name"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_pod(daemon_set: DaemonSet, node: str, hash_: str) -> dict[str, Any]:
    """Return the set's pod for a node, as JSON."""
    pod = pod_of(DAEMON_SETS, daemon_set.metadata, daemon_set.spec.template)
    meta, spec = pod["metadata"], pod["spec"]
    labels = {**meta.get("labels", {}), HASH: hash_}
    generation = template_generation(daemon_set)
    if generation is not None:
        labels[GENERATION] = generation
    return {
        "metadata": {**meta, "labels": labels},
        "spec": {
            **spec,
            "tolerations": daemon_tolerations(spec),
            "affinity": _bound_to(spec.get("affinity") or {}, node),
        },
    }


def template_generation(daemon_set: DaemonSet) -> str | None:
    """Return the deprecated number of the template, None without one."""
    text = daemon_set.metadata.annotations.get(_GENERATION_ANNOTATION, "")
    return text if text.isascii() and text.isdigit() else None


def is_updated(daemon_set: DaemonSet, pod: Pod, hash_: str) -> bool:
    """Return whether the pod was made from the present template."""
    labels, generation = pod.metadata.labels, template_generation(daemon_set)
    return labels.get(HASH) == hash_ or (
        generation is not None and labels.get(GENERATION) == generation
    )


def target_node(pod: Pod) -> str | None:
    """Return the node that the pod is bound to, or that its affinity names; None without one."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required else ():
        for requirement in term.match_fields:
            if requirement.key == _NAME_FIELD and requirement.operator == "In":
                return requirement.values[0] if len(requirement.values) == 1 else None
    return None


def _bound_to(affinity: Raw, node: str) -> Raw:
    named = {"key": _NAME_FIELD, "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    node_affinity = affinity.get("nodeAffinity") or {}
    return {**affinity, "nodeAffinity": {**node_affinity, _REQUIRED: required}}


# Pauses before failed daemon pods are deleted, so that a node that rejects them is not flooded.
#
# Source: `failedPodsBackoff` of the DaemonSet controller: from one second up to fifteen minutes.

_FIRST_S = 1.0
_LIMIT_S = 900.0

Key = tuple[str, int, str]
"""A DaemonSet's uid and observed generation, and a node."""


@dataclass(frozen=True, slots=True)
class _Pause:
    since: float
    seconds: float


class FailedPods:
    """The pauses of all DaemonSets' nodes. A new specification begins with none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[Key, _Pause] = {}

    def seconds_left(self, key: Key) -> float:
        """Return the seconds until the next failed pod there may be deleted, 0 for now."""
        pause = self._pauses.get(key)
        if pause is None:
            return 0.0
        return max(0.0, pause.since + pause.seconds - self._clock.monotonic())

    def deleted(self, key: Key) -> None:
        """Begin a pause after a deletion, twice as long as the last."""
        now = self._clock.monotonic()
        old = [other for other, pause in self._pauses.items() if now - pause.since > 2 * _LIMIT_S]
        for other in old:
            del self._pauses[other]
        last = self._pauses.get(key)
        seconds = min(_LIMIT_S, 2 * last.seconds) if last is not None else _FIRST_S
        self._pauses[key] = _Pause(now, seconds)


_ROLLING_UPDATE = "RollingUpdate"

PodsByNode = Mapping[str, Sequence[Pod]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The nodes that need a pod, the pods to delete, and ended pods to delete with a pause."""

    nodes: tuple[str, ...] = ()
    deletions: tuple[Pod, ...] = ()
    ended: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What decisions are made on: a set, its present template's hash, and the time."""

    daemon_set: DaemonSet
    hash: str
    now: datetime

    def is_new(self, pod: Pod) -> bool:
        return is_updated(self.daemon_set, pod, self.hash)

    def is_available(self, pod: Pod) -> bool:
        min_ready_s = self.daemon_set.spec.min_ready_seconds
        return seconds_until_available(pod, min_ready_s, self.now) == 0


def is_rolling(daemon_set: DaemonSet) -> bool:
    return daemon_set.spec.update_strategy.type in ("", _ROLLING_UPDATE)


def max_surge(daemon_set: DaemonSet, desired: int) -> int:
    """Return on how many nodes an update may run a second pod."""
    rolling = daemon_set.spec.update_strategy.rolling_update
    if rolling is None or not is_rolling(daemon_set):
        return 0
    return scaled(rolling.max_surge, desired, rounds_up=True)


def max_unavailable(daemon_set: DaemonSet, desired: int) -> int:
    """Return on how many nodes an update may leave no available pod."""
    rolling = daemon_set.spec.update_strategy.rolling_update
    if not is_rolling(daemon_set):
        return 0
    if rolling is None or rolling.max_unavailable is None:
        return 1
    unavailable = scaled(rolling.max_unavailable, desired, rounds_up=True)
    # Something has to move.
    return unavailable or (0 if max_surge(daemon_set, desired) else 1)


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the pods by the node they are for, without those that ended and are being deleted."""
    nodes: dict[str, list[Pod]] = {}
    for pod in pods:
        node = target_node(pod)
        if node is not None and not (is_ended(pod) and is_deleting(pod)):
            nodes.setdefault(node, []).append(pod)
    return nodes


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods with those that are bound first, then the oldest first."""

    def order(pod: Pod) -> tuple[bool, str, str]:
        meta = pod.metadata
        return not pod.spec.node_name, meta.creation_timestamp or "", meta.name

    return sorted(pods, key=order)


def placed(view: View, fits: Mapping[str, Fit], pods: PodsByNode) -> Plan:
    """Plan one pod for each node that gets one, and none for the others.

    `fits` has every node of the cluster.
    """
    nodes: list[str] = []
    deletions: list[Pod] = []
    ended: list[Pod] = []
    for node, fit in fits.items():
        own = pods.get(node, ())
        if fit.gets_pod and not own:
            nodes.append(node)
        elif fit.keeps_pod:
            staying = [pod for pod in own if not is_deleting(pod)]
            ended += filter(is_ended, staying)
            running = by_age(pod for pod in staying if not is_ended(pod))
            deletions += _surplus(view, running)
            if max_surge(view.daemon_set, 1) and fit.gets_pod and not running:
                nodes.append(node)
        else:
            deletions += (pod for pod in own if not is_deleting(pod))
    deletions += (
        pod
        for node, own in pods.items()
        if node not in fits
        for pod in own
        if not pod.spec.node_name and not is_deleting(pod)
    )
    return Plan(tuple(nodes), tuple(deletions), tuple(ended))


def _surplus(view: View, running: Sequence[Pod]) -> list[Pod]:
    """Return the pods that are too many on one node, of those that run there, oldest first.

    With surge an old pod may stay beside a new one, while it is ready and the new one not yet
    available.
    """
    if not max_surge(view.daemon_set, 1):
        return list(running[1:])
    new = [pod for pod in running if view.is_new(pod)]
    old = [pod for pod in running if not view.is_new(pod)]
    surplus = [*new[1:], *old[1:]]
    if new and old and (not is_ready(old[0]) or view.is_available(new[0])):
        surplus.append(old[0])
    return surplus


def rolled(view: View, fits: Mapping[str, Fit], pods: PodsByNode) -> Plan:
    """Plan the next step of a rolling update; empty for any other strategy."""
    if not is_rolling(view.daemon_set):
        return Plan()
    wanted = {node for node, fit in fits.items() if fit.gets_pod}
    every = {**dict.fromkeys(wanted, ()), **pods}
    ordered = {node: every[node] for node in (*fits, *pods) if node in every}
    surge = max_surge(view.daemon_set, len(wanted))
    if surge:
        return _surged(view, fits, ordered, surge, len(wanted))
    return _replaced(view, ordered, max_unavailable(view.daemon_set, len(wanted)))


def _replaced(view: View, pods: PodsByNode, limit: int) -> Plan:
    """Plan to delete old pods: all that are unavailable, and others up to the limit."""
    unavailable = 0
    useless: list[Pod] = []
    useful: list[Pod] = []
    for own in pods.values():
        pair = _pair(view, own)
        if pair is None or (pair.new is None) == (pair.old is None):
            unavailable += 1
        elif pair.new is not None:
            unavailable += not view.is_available(pair.new)
        elif pair.old is not None and view.is_available(pair.old):
            useful.append(pair.old)
        elif pair.old is not None:
            useless.append(pair.old)
            unavailable += 1
    return Plan(deletions=(*useless, *useful[: max(0, limit - unavailable)]))


def _surged(
    view: View, fits: Mapping[str, Fit], pods: PodsByNode, limit: int, desired: int
) -> Plan:
    """Plan to create new pods beside old ones, and to delete old ones that are replaced.

    On nodes that get no pod any more, available old pods go only when enough others are available.
    """
    surged = available = 0
    allowed: list[str] = []
    candidates: list[str] = []
    deletions: list[Pod] = []
    misplaced: list[Pod] = []
    for node, own in pods.items():
        pair = _pair(view, own)
        if pair is None:
            surged += 1
            continue
        counted = pair.old or pair.new
        available += counted is not None and view.is_available(counted)
        if pair.old is None:
            continue
        if pair.new is not None:
            if view.is_available(pair.new):
                deletions.append(pair.old)
            else:
                surged += 1
            continue
        is_useful, gets_pod = view.is_available(pair.old), fits.get(node, NO_FIT).gets_pod
        if gets_pod:
            (candidates if is_useful else allowed).append(node)
        else:
            (misplaced if is_useful else deletions).append(pair.old)
    deletions += misplaced[: max(0, available - desired)]
    return Plan((*allowed, *candidates[: max(0, limit - surged)]), tuple(deletions))


@dataclass(frozen=True, slots=True)
class _Pair:
    new: Pod | None
    old: Pod | None


def _pair(view: View, pods: Iterable[Pod]) -> _Pair | None:
    """Return a node's new and old pod; None if there are several of a sort."""
    staying = [pod for pod in pods if not is_deleting(pod)]
    new = [pod for pod in staying if view.is_new(pod)]
    old = [pod for pod in staying if not view.is_new(pod)]
    if len(new) > 1 or len(old) > 1:
        return None
    return _Pair(new[0] if new else None, old[0] if old else None)
