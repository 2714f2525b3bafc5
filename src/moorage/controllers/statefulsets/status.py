"""Status of a StatefulSet. Source: apps/v1 `StatefulSetStatus`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from moorage.api.workloads import StatefulSet, StatefulSetStatus
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_deleting, is_ready
from moorage.controllers.statefulsets.identity import REVISION, replicas_of
from moorage.controllers.statefulsets.planning import is_available


def observed_status(
    stateful_set: StatefulSet,
    pods: Sequence[Pod],
    revisions: tuple[str, str],
    collisions: int,
    replaced: Collection[str],
    now: datetime,
) -> StatefulSetStatus:
    """Compute the status from the pods.

    `revisions` are the names of the current and the newest revision, `replaced` the uids of pods
    that have just been deleted for an update.
    """
    current, update = revisions
    ready = [pod for pod in pods if pod.status.phase == "Running" and is_ready(pod)]
    min_ready_s = stateful_set.spec.min_ready_seconds
    staying = [pod for pod in pods if not is_deleting(pod)]
    status = StatefulSetStatus(
        observed_generation=stateful_set.metadata.generation,
        replicas=len(pods),
        ready_replicas=len(ready),
        available_replicas=sum(is_available(pod, min_ready_s, now) for pod in ready),
        current_replicas=sum(
            _has(pod, current) for pod in staying if pod.metadata.uid not in replaced
        ),
        updated_replicas=sum(_has(pod, update) for pod in staying),
        current_revision=current,
        update_revision=update,
        collision_count=collisions,
        conditions=stateful_set.status.conditions,
    )
    return _completed(status, replicas_of(stateful_set))


def _completed(status: StatefulSetStatus, replicas: int) -> StatefulSetStatus:
    """Make the newest revision the current one, once every pod has it and is ready."""
    counts = (status.updated_replicas, status.ready_replicas, status.replicas)
    if counts != (replicas, replicas, replicas):
        return status
    return msgspec.structs.replace(
        status,
        current_replicas=status.updated_replicas,
        current_revision=status.update_revision,
    )


def _has(pod: Pod, revision: str) -> bool:
    return pod.metadata.labels.get(REVISION) == revision
