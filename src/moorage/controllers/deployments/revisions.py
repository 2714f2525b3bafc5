"""Revisions: the annotations that number ReplicaSets, carry notes to them and remember sizes.

`kubectl rollout history` and `undo` read them. Source: API docs "Checking Rollout History of a
Deployment", `deploymentutil`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.api.workloads import Deployment, ReplicaSet
from moorage.controllers.deployments.bounds import max_surge, replicas_of

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        REVISION_HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
    }
)
_HISTORY_LIMIT = 2000


def revision_of(annotations: Mapping[str, str]) -> int:
    """Return the revision number in the annotations; 0 if absent or invalid."""
    try:
        return int(annotations.get(REVISION, "0"))
    except ValueError:
        return 0


def next_revision(old: Iterable[ReplicaSet]) -> int:
    return (
        max((revision_of(replica_set.metadata.annotations) for replica_set in old), default=0) + 1
    )


def new_set_annotations(
    deployment: Deployment, present: Mapping[str, str], revision: int, *, is_existing: bool
) -> dict[str, str]:
    """Return the desired annotations of the new set, given its present ones."""
    annotations = {
        **present,
        **{k: v for k, v in deployment.metadata.annotations.items() if k not in _NOT_COPIED},
    }
    had = present.get(REVISION, "")
    if revision_of(present) < revision:
        annotations[REVISION] = str(revision)
        if had:
            # A template that comes back is a new revision; the numbers it had are kept.
            history = _history(present.get(REVISION_HISTORY, ""), had)
            annotations[REVISION_HISTORY] = history
    if not is_existing:
        annotations |= size_annotations(deployment)
    return annotations


def size_annotations(deployment: Deployment) -> dict[str, str]:
    """Return the annotations that record the Deployment's size, to detect a later change."""
    replicas = replicas_of(deployment)
    return {
        DESIRED_REPLICAS: str(replicas),
        MAX_REPLICAS: str(replicas + max_surge(deployment)),
    }


def noted_size(replica_set: ReplicaSet, annotation: str) -> int | None:
    """Return the number in a size annotation; None if absent or invalid."""
    try:
        return int(replica_set.metadata.annotations[annotation])
    except (KeyError, ValueError):
        return None


def expired_sets(deployment: Deployment, old: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return the empty old sets beyond revisionHistoryLimit, lowest revisions first."""
    limit = deployment.spec.revision_history_limit
    if limit is None or limit == 2**31 - 1:
        return []
    alive = [replica_set for replica_set in old if replica_set.metadata.deletion_timestamp is None]
    surplus = len(alive) - limit
    if surplus <= 0:
        return []
    alive.sort(
        key=lambda replica_set: (
            revision_of(replica_set.metadata.annotations),
            replica_set.metadata.creation_timestamp or "",
        )
    )
    return [replica_set for replica_set in alive[:surplus] if _is_settled_empty(replica_set)]


def _is_settled_empty(replica_set: ReplicaSet) -> bool:
    return (
        replica_set.status.replicas == 0
        and (replica_set.spec.replicas or 0) == 0
        and replica_set.metadata.generation <= replica_set.status.observed_generation
    )


def _history(history: str, revision: str) -> str:
    """Return the list with the revision appended, dropping the oldest where it is too long."""
    numbers = [*filter(None, history.split(",")), revision]
    while len(numbers) > 1 and len(",".join(numbers)) > _HISTORY_LIMIT:
        numbers.pop(0)
    return ",".join(numbers)
