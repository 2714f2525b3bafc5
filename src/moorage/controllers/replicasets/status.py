"""Status of a ReplicaSet. Source: apps/v1 `ReplicaSetStatus`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.labels import from_labels
from moorage.api.workloads import ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_ready, seconds_until_available

REPLICA_FAILURE = "ReplicaFailure"


def observed_status(
    replica_set: ReplicaSet,
    active: Sequence[Pod],
    terminating: int | None,
    failure: str | None,
    now: datetime,
) -> ReplicaSetStatus:
    """Compute the status from the pods. `failure` is the error of managing them, if any."""
    template_labels = from_labels(template_labels_of(replica_set))
    min_ready_s = replica_set.spec.min_ready_seconds
    return ReplicaSetStatus(
        replicas=len(active),
        fully_labeled_replicas=sum(template_labels.matches(pod.metadata.labels) for pod in active),
        ready_replicas=sum(map(is_ready, active)),
        available_replicas=sum(
            seconds_until_available(pod, min_ready_s, now) == 0 for pod in active
        ),
        terminating_replicas=terminating,
        observed_generation=replica_set.metadata.generation,
        conditions=_conditions(replica_set, len(active), failure, now),
    )


def template_labels_of(replica_set: ReplicaSet) -> dict[str, str]:
    labels: dict[str, str] = (replica_set.spec.template.get("metadata") or {}).get("labels") or {}
    return labels


def _conditions(
    replica_set: ReplicaSet, active: int, failure: str | None, now: datetime
) -> tuple[ReplicaSetCondition, ...]:
    conditions = replica_set.status.conditions
    others = tuple(other for other in conditions if other.type != REPLICA_FAILURE)
    if failure is None:
        return others
    if len(others) < len(conditions):
        return conditions
    wanted = replica_set.spec.replicas or 0
    if active == wanted:
        return conditions
    condition = ReplicaSetCondition(
        type=REPLICA_FAILURE,
        status="True",
        last_transition_time=format_time(now),
        reason="FailedCreate" if active < wanted else "FailedDelete",
        message=failure,
    )
    return (*conditions, condition)
