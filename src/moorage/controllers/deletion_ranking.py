"""Ranking of pods for deletion when there are too many.

Source: API docs "ReplicaSet: scaling down", `ActivePodsWithRanks`. Ages are compared on a
logarithmic scale, so that among pods of about the same age chance decides and not the order of
creation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from moorage.api.clock import parse_time
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_active, is_ready, ready_since

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST_LIMIT = 2**31


def pods_to_delete(
    pods: Sequence[Pod], related: Iterable[Pod], count: int, now: datetime
) -> list[Pod]:
    """Return the `count` pods to delete first.

    `related` are the pods of the ReplicaSets with the same owner: nodes that have many of them
    lose theirs first.
    """
    if count >= len(pods):
        return list(pods)
    crowd = Counter(pod.spec.node_name for pod in related if is_active(pod))
    return sorted(pods, key=lambda pod: _rank(pod, crowd[pod.spec.node_name], now))[:count]


def deletion_cost(pod: Pod) -> int:
    """Return the pod's deletion cost annotation; 0 if absent or not a 32-bit integer."""
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    try:
        cost = int(text)
    except ValueError:
        return 0
    is_canonical = str(cost) == text and -_COST_LIMIT <= cost < _COST_LIMIT
    return cost if is_canonical else 0


def _rank(pod: Pod, crowd: int, now: datetime) -> tuple[Any, ...]:
    """Return the pod's sort key; the lowest is deleted first."""
    regular, sidecar = _restarts(pod)
    created = pod.metadata.creation_timestamp
    return (
        bool(pod.spec.node_name),
        _PHASE_ORDER.get(pod.status.phase, 0),
        is_ready(pod),
        deletion_cost(pod),
        -crowd,
        _age_class(ready_since(pod), now),
        -regular,
        -sidecar,
        _age_class(parse_time(created) if created else None, now),
        pod.metadata.uid,
    )


def _age_class(since: datetime | None, now: datetime) -> int:
    """Return the logarithm of the age; an unknown time counts as the youngest."""
    if since is None:
        return -2
    nanoseconds = int((now - since).total_seconds() * 1e9)
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _restarts(pod: Pod) -> tuple[int, int]:
    """Return the highest restart counts of a regular container and of a sidecar."""
    sidecars = {
        container.name
        for container in pod.spec.init_containers
        if container.restart_policy == "Always"
    }
    regular = max(
        (container_status.restart_count for container_status in pod.status.container_statuses),
        default=0,
    )
    sidecar = max(
        (
            init_container_status.restart_count
            for init_container_status in pod.status.init_container_statuses
            if init_container_status.name in sidecars
        ),
        default=0,
    )
    return regular, sidecar
