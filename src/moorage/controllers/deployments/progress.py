"""Progress of a Deployment: counts, availability, and whether its rollout progresses.

`kubectl rollout status` and `kubectl wait` read the conditions made here. Source: API docs
"Deployment status", apps/v1 `DeploymentCondition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from moorage.api.clock import format_time, parse_time
from moorage.api.workloads import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from moorage.controllers.deployments.bounds import max_unavailable, replicas_of
from moorage.controllers.deployments.sets import SetsOf, available_replicas, wanted_replicas

PROGRESSING = "Progressing"
AVAILABLE = "Available"
REPLICA_FAILURE = "ReplicaFailure"

NEW_SET_CREATED = "NewReplicaSetCreated"
FOUND_NEW_SET = "FoundNewReplicaSet"
SET_UPDATED = "ReplicaSetUpdated"
NEW_SET_AVAILABLE = "NewReplicaSetAvailable"
SET_CREATE_ERROR = "ReplicaSetCreateError"
DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"

Conditions = tuple[DeploymentCondition, ...]


def find(conditions: Conditions, type_: str) -> DeploymentCondition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def without(conditions: Conditions, type_: str) -> Conditions:
    return tuple(condition for condition in conditions if condition.type != type_)


def condition(
    type_: str, status: str, reason: str, message: str, now: datetime
) -> DeploymentCondition:
    """Return a condition whose update and transition times are `now`."""
    stamp = format_time(now)
    return DeploymentCondition(
        type=type_,
        status=status,
        last_update_time=stamp,
        last_transition_time=stamp,
        reason=reason,
        message=message,
    )


def with_condition(conditions: Conditions, new: DeploymentCondition) -> Conditions:
    """Return the conditions with `new` replacing the one of its type.

    A present condition with the same status and reason is kept.
    """
    current = find(conditions, new.type)
    if current is not None and (current.status, current.reason) == (new.status, new.reason):
        return conditions
    if current is not None and current.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=current.last_transition_time)
    return (*without(conditions, new.type), new)


def has_deadline(deployment: Deployment) -> bool:
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != 2**31 - 1


def observed_status(deployment: Deployment, sets: SetsOf, now: datetime) -> DeploymentStatus:
    """Return the status with current counts and Available; other conditions are unchanged."""
    available = available_replicas(sets.all)
    terminating = [replica_set.status.terminating_replicas for replica_set in sets.all]
    known = [count for count in terminating if count is not None]
    if available >= replicas_of(deployment) - max_unavailable(deployment):
        availability = condition(
            AVAILABLE, "True", "MinimumReplicasAvailable",
            "Deployment has minimum availability.", now,
        )  # fmt: skip
    else:
        availability = condition(
            AVAILABLE, "False", "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.", now,
        )  # fmt: skip
    return DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=sum(replica_set.status.replicas for replica_set in sets.all),
        updated_replicas=sets.new.status.replicas if sets.new is not None else 0,
        ready_replicas=sum(replica_set.status.ready_replicas for replica_set in sets.all),
        available_replicas=available,
        unavailable_replicas=max(0, wanted_replicas(sets.all) - available),
        terminating_replicas=sum(known) if len(known) == len(terminating) else None,
        conditions=with_condition(deployment.status.conditions, availability),
        collision_count=deployment.status.collision_count,
    )


def rollout_status(deployment: Deployment, sets: SetsOf, now: datetime) -> DeploymentStatus:
    """Return `observed_status` with the Progressing and ReplicaFailure conditions updated."""
    status = observed_status(deployment, sets, now)
    conditions = status.conditions
    if not has_deadline(deployment):
        conditions = without(conditions, PROGRESSING)
    elif not _was_completed(deployment, status):
        conditions = _judged(deployment, sets, status, now)
    failure = _failure(sets)
    if failure is not None:
        conditions = with_condition(conditions, failure)
    else:
        conditions = without(conditions, REPLICA_FAILURE)
    return msgspec.structs.replace(status, conditions=conditions)


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Return whether all pods have the present template and are available, and no others remain."""
    wanted = replicas_of(deployment)
    return (
        status.updated_replicas == wanted
        and status.replicas == wanted
        and status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def seconds_to_deadline(
    deployment: Deployment, status: DeploymentStatus, now: datetime
) -> float | None:
    """Return the seconds until the progress deadline is checked again; None if not needed."""
    current = find(status.conditions, PROGRESSING)
    if not has_deadline(deployment) or current is None or current.reason == DEADLINE_EXCEEDED:
        return None
    if is_complete(deployment, status) or deployment.spec.paused:
        return None
    # The deadline is passed only strictly after its second.
    return max(0.0, (_deadline(deployment, current) - now).total_seconds()) + 1.0


def pause_conditions(deployment: Deployment, now: datetime) -> Conditions | None:
    """Return the conditions after a pause or resume; None if they do not change."""
    conditions = deployment.status.conditions
    current = find(conditions, PROGRESSING)
    if not has_deadline(deployment):
        return None
    if current is not None and current.reason == DEADLINE_EXCEEDED:
        return None
    was_paused = current is not None and current.reason == PAUSED
    if deployment.spec.paused and not was_paused:
        paused = condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)
    elif not deployment.spec.paused and was_paused:
        paused = condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now)
    else:
        return None
    return with_condition(conditions, paused)


def _was_completed(deployment: Deployment, status: DeploymentStatus) -> bool:
    current = find(deployment.status.conditions, PROGRESSING)
    return (
        status.replicas == status.updated_replicas
        and current is not None
        and current.reason == NEW_SET_AVAILABLE
    )


def _judged(
    deployment: Deployment, sets: SetsOf, status: DeploymentStatus, now: datetime
) -> Conditions:
    conditions = status.conditions
    subject = f'Deployment "{deployment.metadata.name}"'
    if sets.new is not None:
        subject = f'ReplicaSet "{sets.new.metadata.name}"'
    if is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        complete = condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now)
        return with_condition(conditions, complete)
    if _has_progressed(deployment.status, status):
        complete = condition(PROGRESSING, "True", SET_UPDATED, f"{subject} is progressing.", now)
        current = find(conditions, PROGRESSING)
        if current is not None and current.status == complete.status:
            since = current.last_transition_time
            complete = msgspec.structs.replace(complete, last_transition_time=since)
        # Each step renews the time that the deadline is counted from.
        return (*without(conditions, PROGRESSING), complete)
    if _is_late(deployment, status, now):
        message = f"{subject} has timed out progressing."
        complete = condition(PROGRESSING, "False", DEADLINE_EXCEEDED, message, now)
        return with_condition(conditions, complete)
    return conditions


def _has_progressed(before: DeploymentStatus, after: DeploymentStatus) -> bool:
    return (
        after.updated_replicas > before.updated_replicas
        or after.replicas - after.updated_replicas < before.replicas - before.updated_replicas
        or after.ready_replicas > before.ready_replicas
        or after.available_replicas > before.available_replicas
    )


def _is_late(deployment: Deployment, status: DeploymentStatus, now: datetime) -> bool:
    current = find(status.conditions, PROGRESSING)
    if current is None or current.reason == NEW_SET_AVAILABLE:
        return False
    return current.reason == DEADLINE_EXCEEDED or _deadline(deployment, current) < now


def _deadline(deployment: Deployment, current: DeploymentCondition) -> datetime:
    since = parse_time(current.last_update_time or current.last_transition_time or "")
    return since + timedelta(seconds=deployment.spec.progress_deadline_seconds or 0)


def _failure(sets: SetsOf) -> DeploymentCondition | None:
    """Return the ReplicaFailure condition of a set, preferring the new set's; None without one."""
    new: Sequence[ReplicaSet] = () if sets.new is None else (sets.new,)
    for replica_set in (*new, *sets.old):
        for condition in replica_set.status.conditions:
            if condition.type == REPLICA_FAILURE:
                return DeploymentCondition(
                    type=REPLICA_FAILURE,
                    status=condition.status,
                    last_update_time=condition.last_transition_time,
                    last_transition_time=condition.last_transition_time,
                    reason=condition.reason,
                    message=condition.message,
                )
    return None
