"""Progress of one workload, read from its status: settled, held, or failed.

Each kind says differently that pods have a new template. What replaces no pods by itself (paused
Deployments, OnDelete) is held: the template changes, and its owner decides when pods follow. That
is known before the move (`moved_at` is None), so that such workloads do not go first.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from moorage.api.clock import parse_time
from moorage.api.jobs import Job
from moorage.api.workloads import DaemonSet, Deployment, StatefulSet

_ON_DELETE = "OnDelete"
_LATE = "ProgressDeadlineExceeded"


class Progress(msgspec.Struct, frozen=True):
    """The fields of a `Workload` that differ by kind."""

    size: int
    is_settled: bool
    hold: str = ""
    fault: str = ""
    note: str = ""


def of_deployment(deployment: Deployment, moved_at: datetime | None) -> Progress:
    """Return how far a Deployment's pods have its template."""
    spec, status = deployment.spec, deployment.status
    size = 1 if spec.replicas is None else spec.replicas
    is_seen = status.observed_generation >= deployment.metadata.generation
    is_old = moved_at is None or not is_seen or status.updated_replicas < size
    if spec.paused and size and is_old:
        return Progress(size, True, hold="the Deployment is paused: resume it to replace its pods")
    is_settled = (
        is_seen
        and status.updated_replicas == status.replicas == size
        and status.available_replicas >= size
    )
    fault = note = ""
    for condition in status.conditions:
        if condition.type == "ReplicaFailure" and condition.status == "True":
            note = condition.message
        is_late = condition.type == "Progressing" and condition.reason == _LATE
        if is_late and is_seen and moved_at is not None:
            since = condition.last_update_time or condition.last_transition_time
            if since is not None and parse_time(since) >= moved_at:
                fault = condition.message
    return Progress(size, is_settled, fault=fault, note=note)


def of_stateful_set(stateful_set: StatefulSet, moved_at: datetime | None) -> Progress:
    """Return how far a StatefulSet's pods have its template."""
    spec, status = stateful_set.spec, stateful_set.status
    size = 1 if spec.replicas is None else spec.replicas
    is_seen = status.observed_generation >= stateful_set.metadata.generation
    if spec.update_strategy.type == _ON_DELETE:
        return _on_delete(size, moved_at is not None and is_seen, status.updated_replicas)
    rolling = spec.update_strategy.rolling_update
    partition = (rolling.partition or 0) if rolling is not None else 0
    replaced = max(0, size - max(0, partition - spec.ordinals.start))
    is_settled = (
        is_seen and status.updated_replicas >= replaced and status.available_replicas >= size
    )
    hold = ""
    if replaced < size and (moved_at is None or status.updated_replicas < size):
        hold = f"updateStrategy.rollingUpdate.partition keeps {size - replaced} pods: lower it"
    return Progress(size, is_settled, hold=hold)


def of_daemon_set(daemon_set: DaemonSet, moved_at: datetime | None) -> Progress:
    """Return how far a DaemonSet's pods have its template."""
    status = daemon_set.status
    size = status.desired_number_scheduled
    is_seen = status.observed_generation >= daemon_set.metadata.generation
    if daemon_set.spec.update_strategy.type == _ON_DELETE:
        is_seen = moved_at is not None and is_seen
        return _on_delete(size, is_seen, status.updated_number_scheduled)
    is_settled = (
        is_seen and status.updated_number_scheduled >= size and status.number_available >= size
    )
    return Progress(size, is_settled)


def of_cron_job(jobs: Iterable[Job], moved_at: datetime | None) -> Progress:
    """Return the state of a CronJob: settled at once, failed if its latest Job since has failed."""
    if moved_at is None:
        return Progress(0, True)
    latest = max(
        (job for job in jobs if _created(job) >= moved_at and job.status.finished is not None),
        key=_created,
        default=None,
    )
    failure = latest.status.condition("Failed") if latest is not None else None
    if latest is None or failure is None:
        return Progress(0, True)
    return Progress(0, True, fault=f"Job {latest.metadata.name} failed: {failure.message}")


def _created(job: Job) -> datetime:
    return parse_time(job.metadata.creation_timestamp or "1970-01-01T00:00:00Z")


def _on_delete(size: int, is_seen: bool, updated: int) -> Progress:
    if not is_seen or updated < size:
        hold = "updateStrategy is OnDelete: delete its pods to replace them"
        return Progress(size, True, hold=hold)
    return Progress(size, True)
