"""Pod resource totals: container requests and limits plus sandbox overhead, counted once.

Source: KEP-688 "Pod Overhead", KEP-753 "Sidecar containers" (init peaks), KEP-2837 (pod-level
resources). Upstream counts overhead twice for a running pod with pod-level resources, because it
takes the maximum with a status that already includes it; here `resizing` alone consults a status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from moorage.api.containers import Container, ResourceRequirements
from moorage.api.pods import PodSpec
from moorage.api.quantity import Quantity, add_resources, max_resources, parse
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.overhead_estimates import MEBIBYTE, percentile

# Drift of overhead: whether what running pods of a class cost still fits what it declares.
#
# Nodes measure pods whole and each container apart. Where containers share one cgroup (gVisor,
# virtual machines) the second is only divided, so the overhead of such a pod is known within
# bounds: all of it, or none. A verdict is reached where the bounds suffice, never by guessing.
# Pure. Source: KEP-688; `stats/v1alpha1` (which figures a node gives).

MEDIAN = 50.0


class Drift(StrEnum):
    """How a class's declared overhead compares with reality."""

    FITS = "Fits"
    TOO_LOW = "TooLow"
    TOO_HIGH = "TooHigh"
    UNKNOWN = "Unknown"


class PodCost(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a running pod in bytes, as its node reports it.

    `containers_bytes` is the sum of its containers; `anonymous_bytes` is the pod's memory without
    files and shared memory, None where the node does not report it.
    """

    pod_bytes: int
    containers_bytes: int
    anonymous_bytes: int | None = None


class Bounds(msgspec.Struct, frozen=True):
    """Least and greatest possible overhead, in bytes."""

    lower: int
    upper: int


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as drift, and for how long it must be seen.

    Overhead is too low if it exceeds what is declared by `share` and by `slack_bytes`, too high if
    it stays below by `share_above` and `slack_above_bytes`. A verdict holds after
    `observations` in a row: a pod that starts is no drift.
    """

    share: float = 0.25
    slack_bytes: int = 4 * MEBIBYTE
    share_above: float = 0.5
    slack_above_bytes: int = 32 * MEBIBYTE
    observations: int = 3


class DriftState(msgspec.Struct, frozen=True):
    """Verdict on a class, and the one that would follow it with how often it was seen in a row."""

    verdict: Drift = Drift.UNKNOWN
    next: Drift = Drift.UNKNOWN
    seen: int = 0


def overhead_bounds(cost: PodCost, isolation: Isolation | None) -> Bounds:
    """Return the known bounds of a pod's overhead; never negative.

    Containers that have cgroups of their own are subtracted. A user-space kernel keeps its
    containers' memory in shared memory, so its own is the anonymous part. Anything else whose
    containers' sum is the whole pod may cost nothing or all of it.
    """
    pod = max(0, cost.pod_bytes)
    beyond = max(0, pod - max(0, cost.containers_bytes))
    if isolation is None or isolation is Isolation.SHARED_KERNEL:
        # Without a known level, figures that differ show that containers are measured apart; a
        # difference of rounding does not.
        is_apart = isolation is not None or beyond * 100 > pod
        return Bounds(beyond, beyond) if is_apart else Bounds(0, pod)
    if isolation is Isolation.USER_SPACE_KERNEL and cost.anonymous_bytes is not None:
        anonymous = min(pod, max(0, cost.anonymous_bytes))
        return Bounds(anonymous, anonymous)
    return Bounds(beyond, pod)


def median_bounds(bounds: Sequence[Bounds]) -> Bounds:
    """Return the medians of the bounds. Raises NoSamplesError."""
    return Bounds(
        round(percentile([one.lower for one in bounds], MEDIAN)),
        round(percentile([one.upper for one in bounds], MEDIAN)),
    )


def judge(declared_bytes: int, measured: Bounds | None, tolerance: Tolerance) -> Drift:
    """Return how declared memory compares with what pods cost; UNKNOWN without pods."""
    if measured is None:
        return Drift.UNKNOWN
    allowance = max(declared_bytes * tolerance.share, tolerance.slack_bytes)
    if measured.lower > declared_bytes + allowance:
        return Drift.TOO_LOW
    excess = max(declared_bytes * tolerance.share_above, tolerance.slack_above_bytes)
    if measured.upper < declared_bytes - excess:
        return Drift.TOO_HIGH
    is_within = measured.upper <= declared_bytes + allowance
    return Drift.FITS if is_within else Drift.UNKNOWN


def observe(state: DriftState, seen: Drift, tolerance: Tolerance) -> DriftState:
    """Return the state after an observation.

    UNKNOWN changes nothing: pods that end are no proof that a class fits again.
    """
    if seen is Drift.UNKNOWN or seen is state.verdict:
        return DriftState(state.verdict)
    count = state.seen + 1 if seen is state.next else 1
    if count >= tolerance.observations:
        return DriftState(seen)
    return DriftState(state.verdict, seen, count)


Amounts = dict[str, Quantity]
_Side = Callable[[ResourceRequirements], Mapping[str, str]]


def pod_requests(spec: PodSpec) -> Amounts:
    """Return the requests that scheduler and node charge: containers or init peak, plus overhead.

    Pod-level requests replace those of the containers where set.
    """
    return _sum(pod_requests_without_overhead(spec), _parsed(spec.overhead))


def pod_requests_without_overhead(spec: PodSpec) -> Amounts:
    """Return the requests of the containers; pod-level requests replace them where set."""
    return _pod_total(spec, lambda resources: resources.requests)


def container_requests(spec: PodSpec) -> Amounts:
    """Return the requests of the containers alone, ignoring pod-level requests."""
    return _containers_total(spec, lambda resources: resources.requests)


def pod_limits(spec: PodSpec) -> Amounts:
    """Return the limits of the whole pod; overhead is added only where a limit is set."""
    limits = _pod_total(spec, lambda resources: resources.limits)
    overhead = {name: amount for name, amount in _parsed(spec.overhead).items() if limits.get(name)}
    return _sum(limits, overhead)


def _pod_total(spec: PodSpec, side: _Side) -> Amounts:
    total = _containers_total(spec, side)
    if spec.resources is not None:
        total |= {
            name: amount
            for name, amount in _parsed(side(spec.resources)).items()
            if may_be_pod_level(name)
        }
    return total


def _containers_total(spec: PodSpec, side: _Side) -> Amounts:
    """Return the larger of the main containers' sum and the peak of initialisation.

    Sidecars (init containers that restart) keep running beside each later init container.
    """
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for container in spec.init_containers:
        own = _parsed(side(container.resources))
        if is_sidecar(container):
            sidecars = _sum(sidecars, own)
            peaks.append(sidecars)
        else:
            peaks.append(_sum(sidecars, own))
    together = add_resources(*(side(container.resources) for container in spec.containers))
    return max_resources([*peaks, _sum(together, sidecars)])


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the main containers."""
    return container.restart_policy == "Always"


def may_be_pod_level(name: str) -> bool:
    """Return whether a resource can be requested at pod level (KEP-2837)."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _parsed(resources: Mapping[str, str]) -> Amounts:
    return {name: parse(text) for name, text in resources.items()}


def _sum(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    total = dict(left)
    for name, amount in right.items():
        total[name] = total[name] + amount if name in total else amount
    return total
