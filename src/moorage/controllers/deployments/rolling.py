"""Rolling update: the next sizes of a Deployment's ReplicaSets. Pure.

A plan maps names of ReplicaSets to sizes. A set that keeps its size is in it only where its size
annotations may have to change. Source: API docs
"Rolling Update Deployment", "Proportional scaling".
"""

from __future__ import annotations

import math

from moorage.api.workloads import Deployment, ReplicaSet
from moorage.controllers.deployments.bounds import (
    is_rolling,
    max_surge,
    max_unavailable,
    replicas_of,
)
from moorage.controllers.deployments.revisions import DESIRED_REPLICAS, MAX_REPLICAS, noted_size
from moorage.controllers.deployments.sets import (
    SetsOf,
    active,
    available_replicas,
    by_age,
    wanted_replicas,
)
from moorage.controllers.deployments.sets import replicas_of as size_of

Plan = dict[str, int]


def new_set_size(deployment: Deployment, sets: SetsOf) -> int:
    """Return the size the new set (which may not exist yet) may have now."""
    wanted = replicas_of(deployment)
    if not is_rolling(deployment):
        return wanted
    current = size_of(sets.new) if sets.new is not None else 0
    room = wanted + max_surge(deployment) - wanted_replicas(sets.all)
    return current + max(0, min(room, wanted - current))


def grow_new(deployment: Deployment, sets: SetsOf) -> Plan:
    """Plan the new set's next size on its way to `spec.replicas`."""
    assert sets.new is not None
    current, wanted = size_of(sets.new), replicas_of(deployment)
    size = wanted if current > wanted else new_set_size(deployment, sets)
    return {sets.new.metadata.name: size} if size != current else {}


def shrink_old(deployment: Deployment, sets: SetsOf) -> Plan:
    """Plan the old sets' next sizes: unhealthy pods first, then as many as may be unavailable."""
    assert sets.new is not None
    if wanted_replicas(sets.old) == 0:
        return {}
    least_available = replicas_of(deployment) - max_unavailable(deployment)
    new_unavailable = size_of(sets.new) - sets.new.status.available_replicas
    spare = wanted_replicas(sets.all) - least_available - new_unavailable
    if spare <= 0:
        return {}
    sizes = {old_set.metadata.name: size_of(old_set) for old_set in sets.old}
    before = dict(sizes)
    for replica_set in by_age(sets.old):
        size = size_of(replica_set)
        broken = min(spare, size - replica_set.status.available_replicas)
        if size and broken > 0:
            sizes[replica_set.metadata.name] -= broken
            spare -= broken
    healthy = available_replicas(sets.all) - least_available
    for replica_set in by_age(sets.old):
        step = min(sizes[replica_set.metadata.name], max(0, healthy))
        sizes[replica_set.metadata.name] -= step
        healthy -= step
    return {name: size for name, size in sizes.items() if size != before[name]}


def empty_old(sets: SetsOf) -> Plan:
    """Plan all old sets at 0 (Recreate): old pods end before new ones are created."""
    return {replica_set.metadata.name: 0 for replica_set in active(sets.old)}


def is_resized(deployment: Deployment, sets: SetsOf) -> bool:
    """Return whether `spec.replicas` has changed since the sets were last resized."""
    noted = (noted_size(replica_set, DESIRED_REPLICAS) for replica_set in active(sets.all))
    return any(size is not None and size != replicas_of(deployment) for size in noted)


def resize(deployment: Deployment, sets: SetsOf) -> Plan:
    """Plan the sizes after a change of `spec.replicas`, also during a rollout."""
    wanted = replicas_of(deployment)
    only = _only_active(sets)
    if only is not None:
        return {only.metadata.name: wanted}
    if _is_saturated(deployment, sets.new):
        return empty_old(sets)
    return _in_proportion(deployment, sets) if is_rolling(deployment) else {}


def _only_active(sets: SetsOf) -> ReplicaSet | None:
    """Return the only set with pods; None if several have pods.

    If none has pods, returns the new set or else the latest.
    """
    running = active(sets.all)
    if len(running) > 1:
        return None
    if running:
        return running[0]
    if sets.new is not None:
        return sets.new
    return next(iter(by_age(sets.old, oldest_first=False)), None)


def _is_saturated(deployment: Deployment, new: ReplicaSet | None) -> bool:
    wanted = replicas_of(deployment)
    return (
        new is not None
        and size_of(new) == wanted
        and noted_size(new, DESIRED_REPLICAS) == wanted
        and new.status.available_replicas == wanted
    )


def _in_proportion(deployment: Deployment, sets: SetsOf) -> Plan:
    """Scale each active set in proportion to its size; the largest takes the remainder."""
    running = active(sets.all)
    wanted = replicas_of(deployment)
    allowed = wanted + max_surge(deployment) if wanted > 0 else 0
    to_add = allowed - wanted_replicas(running)
    # Of equal ones the newer grows first and the older shrinks first.
    ordered = by_age(running, oldest_first=to_add < 0)
    ordered.sort(key=size_of, reverse=True)
    plan: Plan = {}
    added = 0
    for replica_set in ordered:
        share = _share(deployment, replica_set, to_add, added) if to_add else 0
        plan[replica_set.metadata.name] = size_of(replica_set) + share
        added += share
    if to_add and ordered:
        largest = ordered[0].metadata.name
        plan[largest] = max(0, plan[largest] + to_add - added)
    return plan


def _share(deployment: Deployment, replica_set: ReplicaSet, to_add: int, added: int) -> int:
    left = to_add - added
    if left == 0:
        return 0
    part = _fraction(deployment, replica_set)
    return min(part, left) if to_add > 0 else max(part, left)


def _fraction(deployment: Deployment, replica_set: ReplicaSet) -> int:
    size = size_of(replica_set)
    wanted = replicas_of(deployment)
    if wanted == 0:
        return -size
    before = noted_size(replica_set, MAX_REPLICAS) or deployment.status.replicas
    if before == 0:
        return 0
    return round_half_away(size * (wanted + max_surge(deployment)) / before) - size


def round_half_away(value: float) -> int:
    """Round to the nearest integer, halves away from zero."""
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)
