"""Planning: how many pods of a budget are healthy, must be, and may be disrupted.

Source: kube-controller-manager `disruption`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.api.clock import parse_time
from moorage.api.disruptions import PodDisruptionBudgetSpec
from moorage.controllers.int_or_percent import scaled
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_deleting, is_ready

DELETION_TIMEOUT = timedelta(minutes=2)
"""After this time, an evicted pod that is not being deleted counts as healthy again."""


@dataclass(frozen=True, slots=True)
class Disrupted:
    """Evicted pods whose deletion is awaited, with the time of the eviction.

    `overdue` were expected to be deleted and were not; `recheck_s` is when the next becomes so.
    """

    pods: Mapping[str, str]
    overdue: Sequence[Pod] = ()
    recheck_s: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """How many pods a budget expects, and how many of them must be healthy."""

    count: int
    healthy: int


def awaited_deletions(
    pods: Iterable[Pod], disrupted: Mapping[str, str], now: datetime
) -> Disrupted:
    """Return which of the evicted pods of a status are still to be deleted."""
    awaited: dict[str, str] = {}
    overdue: list[Pod] = []
    waits: list[float] = []
    for pod in pods:
        name = pod.metadata.name
        if is_deleting(pod) or name not in disrupted:
            continue
        left = parse_time(disrupted[name]) + DELETION_TIMEOUT - now
        if left < timedelta():
            overdue.append(pod)
            continue
        awaited[name] = disrupted[name]
        waits.append(left.total_seconds())
    return Disrupted(awaited, overdue, min(waits, default=None))


def count_healthy(pods: Iterable[Pod], disrupted: Mapping[str, str]) -> int:
    """Return how many pods are ready and neither deleted nor about to be."""
    return sum(
        is_ready(pod) and not is_deleting(pod) and pod.metadata.name not in disrupted
        for pod in pods
    )


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Return whether the expected pods are those that the pods' controllers want."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def expected_pods(spec: PodDisruptionBudgetSpec, count: int) -> Expected:
    """Return what a budget expects of `count` pods. Raises ValueError for a wrong percentage."""
    if spec.max_unavailable is not None:
        unavailable = scaled(spec.max_unavailable, count, rounds_up=True)
        return Expected(count, max(0, count - unavailable))
    if spec.min_available is not None:
        return Expected(count, scaled(spec.min_available, count, rounds_up=True))
    return Expected(0, 0)


def allowed_disruptions(healthy: int, expected: Expected) -> int:
    """Return how many pods may be disrupted now."""
    return max(0, healthy - expected.healthy) if expected.count > 0 else 0
