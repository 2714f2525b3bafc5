"""A Deployment's ReplicaSets: which is the new one, and sums over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moorage.api.workloads import Deployment, ReplicaSet
from moorage.controllers.templates import is_same_template


def replicas_of(replica_set: ReplicaSet) -> int:
    return replica_set.spec.replicas or 0


def wanted_replicas(sets: Iterable[ReplicaSet]) -> int:
    return sum(map(replicas_of, sets))


def available_replicas(sets: Iterable[ReplicaSet]) -> int:
    return sum(replica_set.status.available_replicas for replica_set in sets)


def active(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return the sets with a size above 0."""
    return [replica_set for replica_set in sets if replicas_of(replica_set) > 0]


def by_age(sets: Iterable[ReplicaSet], *, oldest_first: bool = True) -> list[ReplicaSet]:
    def created(replica_set: ReplicaSet) -> tuple[str, str]:
        return replica_set.metadata.creation_timestamp or "", replica_set.metadata.name

    return sorted(sets, key=created, reverse=not oldest_first)


@dataclass(frozen=True, slots=True)
class SetsOf:
    """The sets of one Deployment: the one with its present template, if any, and the others."""

    new: ReplicaSet | None
    old: tuple[ReplicaSet, ...]

    @property
    def all(self) -> tuple[ReplicaSet, ...]:
        return (*self.old, self.new) if self.new is not None else self.old


def sort_sets(deployment: Deployment, sets: Sequence[ReplicaSet]) -> SetsOf:
    """Divide the sets into new and old; of several with the present template the oldest is new."""
    ordered = by_age(sets)
    template = deployment.spec.template
    new = next(
        (
            replica_set
            for replica_set in ordered
            if is_same_template(replica_set.spec.template, template)
        ),
        None,
    )
    return SetsOf(new, tuple(replica_set for replica_set in ordered if replica_set is not new))
