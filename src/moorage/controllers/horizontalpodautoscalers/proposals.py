"""Replica proposals: how many pods a metric of the present ones calls for, pure.

    pods ─▶ ready · unready · missing (no metric) · ignored
    ratio = what is used / what should be used
    replicas = ready pods * ratio, unless the ratio is close to 1

Pods that are missing or unready count as what makes the change smaller. Source: API docs
"Horizontal Pod Autoscaling", algorithm details; `replica_calculator.go` of Kubernetes 1.36.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.api import quantity
from moorage.api.clock import parse_time
from moorage.api.conditions import is_ready
from moorage.api.pods import Pod, PodStatus
from moorage.runtimeclass.overhead import is_sidecar, may_be_pod_level, pod_requests

_MOST_REPLICAS = 2**31 - 1
_CPU = "cpu"


class ProposalError(Exception):
    """No number of replicas can be proposed; the text says why, in upstream's words."""


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod uses in thousandths, measured during `window` up to `time`."""

    milli: int
    time: datetime
    window: timedelta


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far the ratio may be from 1 without a change."""

    down: float
    up: float

    def contain(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Readiness:
    """When the CPU usage of a pod counts. Both are durations since its start."""

    initialization: timedelta
    initial_delay: timedelta


@dataclass(frozen=True, slots=True)
class Groups:
    """Pods by what their metrics are worth: the number of ready ones, the names of the others."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Replicas, and the values that the status shows. `percent` is None for values."""

    replicas: int
    average_milli: int
    percent: int | None = None


def group_pods(
    pods: Iterable[Pod],
    usages: Mapping[str, PodUsage],
    resource: str,
    now: datetime,
    readiness: Readiness,
) -> Groups:
    """Sort pods by the state of their metrics."""
    ready = 0
    unready: set[str] = set()
    missing: set[str] = set()
    ignored: set[str] = set()
    for pod in pods:
        name, phase = pod.metadata.name, pod.status.phase
        if pod.metadata.deletion_timestamp is not None or phase == "Failed":
            ignored.add(name)
        elif phase == "Pending":
            unready.add(name)
        elif name not in usages:
            missing.add(name)
        elif resource == _CPU and _is_unready(pod.status, usages[name], now, readiness):
            unready.add(name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_unready(status: PodStatus, usage: PodUsage, now: datetime, readiness: Readiness) -> bool:
    """Return whether the CPU usage is that of a start, not of work."""
    condition = next((one for one in status.conditions if one.type == "Ready"), None)
    if condition is None or status.start_time is None:
        return True
    started, changed = parse_time(status.start_time), _time(condition.last_transition_time)
    is_false = condition.status == "False"
    if started + readiness.initialization > now:
        # A whole window must have been measured since the pod became ready.
        return is_false or usage.time < changed + usage.window
    # Later only a pod that was never ready is left out.
    return is_false and started + readiness.initial_delay > changed


def _time(text: str | None) -> datetime:
    return parse_time(text or "0001-01-01T00:00:00Z")


def requests_of(pods: Iterable[Pod], container: str, resource: str) -> dict[str, int]:
    """Return the request of each pod, in thousandths.

    With a container, what that one requests. Raises ProposalError where there is no request.
    """
    return {pod.metadata.name: _request(pod, container, resource) for pod in pods}


def _request(pod: Pod, container: str, resource: str) -> int:
    name, own = pod.metadata.name, pod.spec.resources
    if not container and own is not None and any(map(may_be_pod_level, own.requests)):
        amount = pod_requests(pod.spec).get(resource)
        if amount is None:
            raise ProposalError(f"missing pod-level request for {resource} in Pod {name}")
        return amount.milli
    total = 0
    for one in (*pod.spec.containers, *filter(is_sidecar, pod.spec.init_containers)):
        if container and one.name != container:
            continue
        text = one.resources.requests.get(resource)
        if text is None:
            raise ProposalError(
                f"missing request for {resource} in container {one.name} of Pod {name}"
            )
        total += quantity.parse(text).milli
        if container:
            return total
    if container:
        raise ProposalError(f"container {container} not found in Pod {name}")
    return total


def propose_by_utilization(
    current: int,
    percent: int,
    pods: list[Pod],
    usages: Mapping[str, PodUsage],
    requests: Callable[[], Mapping[str, int]],
    groups: Groups,
    tolerances: Tolerances,
) -> Proposal:
    """Return the replicas at which pods use `percent` of their requests on average.

    Raises ProposalError without metrics, and whatever `requests` raises.
    """
    counted = _counted(pods, usages, groups)
    requested = requests()
    _, shown, average = _utilization(counted, requested, percent)

    def ratio(values: Mapping[str, int]) -> float:
        return _utilization(values, requested, percent)[0]

    # On the way down a pod without metrics counts as using all of its request.
    stand_ins = {name: requested[name] * max(100, percent) // 100 for name in groups.missing}
    replicas = _replicas(current, counted, groups, tolerances, ratio, stand_ins)
    return Proposal(replicas, average, shown)


def propose_by_value(
    current: int,
    target_milli: int,
    pods: list[Pod],
    usages: Mapping[str, PodUsage],
    groups: Groups,
    tolerances: Tolerances,
) -> Proposal:
    """Return the replicas at which pods use `target_milli` on average.

    Raises ProposalError without metrics.
    """
    counted = _counted(pods, usages, groups)

    def ratio(values: Mapping[str, int]) -> float:
        return (sum(values.values()) // len(values)) / target_milli

    stand_ins = dict.fromkeys(groups.missing, target_milli)
    replicas = _replicas(current, counted, groups, tolerances, ratio, stand_ins)
    return Proposal(replicas, sum(counted.values()) // len(counted))


def propose_by_total(
    current: int, total_milli: int, target_milli: int, pods: Iterable[Pod], tolerances: Tolerances
) -> Proposal:
    """Return the replicas at which a total that is not of pods comes down to the target.

    Raises ProposalError without pods.
    """
    ratio = total_milli / target_milli
    if tolerances.contain(ratio):
        return Proposal(current, total_milli)
    listed = list(pods)
    if not listed:
        raise ProposalError(
            "unable to calculate ready pods: no pods returned by selector while calculating "
            "replica count"
        )
    ready = sum(pod.status.phase == "Running" and is_ready(pod.status.conditions) for pod in listed)
    return Proposal(_rounded(ratio * ready), total_milli)


def propose_per_pod(
    replicas: int, total_milli: int, target_milli: int, tolerances: Tolerances
) -> Proposal:
    """Return the replicas of which each has `target_milli` of a total that is not of pods."""
    shown = math.ceil(total_milli / replicas) if replicas else total_milli
    if replicas and tolerances.contain(total_milli / (target_milli * replicas)):
        return Proposal(replicas, shown)
    return Proposal(_rounded(total_milli / target_milli), shown)


def _counted(pods: list[Pod], usages: Mapping[str, PodUsage], groups: Groups) -> dict[str, int]:
    """Return the usages that count. Raises ProposalError without any."""
    if not pods:
        raise ProposalError("no pods returned by selector while calculating replica count")
    left_out = groups.unready | groups.ignored
    counted = {name: usage.milli for name, usage in usages.items() if name not in left_out}
    if not counted:
        raise ProposalError("did not receive metrics for targeted pods (pods might be unready)")
    return counted


def _utilization(
    values: Mapping[str, int], requests: Mapping[str, int], percent: int
) -> tuple[float, int, int]:
    """Return the ratio, the utilization in percent and the average usage."""
    shared = [name for name in values if name in requests]
    requested = sum(requests[name] for name in shared)
    if requested == 0:
        raise ProposalError("no metrics returned matched known pods")
    used = sum(values[name] for name in shared)
    utilization = used * 100 // requested
    return utilization / percent, utilization, used // len(shared)


def _replicas(
    current: int,
    values: Mapping[str, int],
    groups: Groups,
    tolerances: Tolerances,
    ratio: Callable[[Mapping[str, int]], float],
    stand_ins: Mapping[str, int],
) -> int:
    first = ratio(values)
    counts_unready = bool(groups.unready) and first > 1.0
    if not counts_unready and not groups.missing:
        return current if tolerances.contain(first) else _rounded(first * groups.ready)
    filled = dict(values)
    if first < 1.0:
        filled |= stand_ins
    elif first > 1.0:
        filled |= dict.fromkeys(groups.missing, 0)
    if counts_unready:
        filled |= dict.fromkeys(groups.unready, 0)
    second = ratio(filled)
    if tolerances.contain(second) or first < 1.0 < second or second < 1.0 < first:
        return current
    replicas = _rounded(second * len(filled))
    # More pods below the target, or fewer above it, is another direction than the ratio's.
    if (second < 1.0 and replicas > current) or (second > 1.0 and replicas < current):
        return current
    return replicas


def _rounded(replicas: float) -> int:
    return min(math.ceil(replicas), _MOST_REPLICAS)
