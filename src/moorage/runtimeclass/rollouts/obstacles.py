"""Obstacles of a rollout: what forbids it to move workloads now.

They are looked for before each move: a class may be deleted, and a handler vanish, half-way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from moorage.api.labels import from_labels, from_object
from moorage.api.meta import Raw
from moorage.api.runtime_group import RuntimeClass
from moorage.api.runtime_rollouts import ACCEPTED, BLOCKED, DONE, ROLLED_BACK, RuntimeRollout

# Workloads as a rollout sees them: class, marks of a move, progress and pods.
#
# Values that an observer fills from the API's objects, whichever their kind.


class Mark(msgspec.Struct, frozen=True):
    """What a rollout's annotations on a workload say of its last move.

    Anyone who may write the workload may have written them.
    """

    rollout: str
    rollout_uid: str
    moved_from: str
    moved_at: datetime
    wave: int


class PodFacts(msgspec.Struct, frozen=True):
    """A pod of the target class; `ready_since` is None while it is not ready.

    `restarts` counts those of its containers, and one more for a pod that failed.
    """

    name: str
    created: datetime
    scheduled: datetime | None = None
    ready_since: datetime | None = None
    restarts: int = 0


class Workload(msgspec.Struct, frozen=True):
    """One workload; `size` is how many pods it wants.

    is_settled: its controller has seen the template, and all pods that it will replace are new
    and available.
    hold: why pods of the old template remain until someone acts, empty if none do.
    fault: what its controller reports as failed, empty if nothing.
    note: what its controller reports that may be why it does not settle.
    refusal: why the API server refused the move, empty if it did not.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    class_name: str
    mark: Mark | None = None
    size: int = 1
    is_settled: bool = False
    is_on_schedule: bool = False
    hold: str = ""
    fault: str = ""
    note: str = ""
    refusal: str = ""
    pods: tuple[PodFacts, ...] = ()

    @property
    def title(self) -> str:
        """Return `Kind namespace/name`."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Unmovable(msgspec.Struct, frozen=True):
    """An object with pods of the class that no patch can move, and why."""

    kind: str
    namespace: str
    name: str
    why: str


OVERLAPS = "RolloutOverlaps"
"""Reason of a rollout that waits for another one."""


class Obstacle(msgspec.Struct, frozen=True):
    """Why no workload is moved: a reason in CamelCase and a sentence."""

    reason: str
    message: str


class NodeFacts(msgspec.Struct, frozen=True):
    """A node; `handlers` is None if it does not report any."""

    name: str
    labels: dict[str, str] = {}
    handlers: frozenset[str] | None = None


Classes = Mapping[str, RuntimeClass]


def find_obstacle(
    rollout: RuntimeRollout,
    others: Iterable[RuntimeRollout],
    classes: Classes,
    nodes: Collection[NodeFacts],
) -> Obstacle | None:
    """Return the obstacle that keeps a rollout from moving workloads forward, None if free."""
    return (
        _bad_selector(rollout)
        or _conflict(rollout, others)
        or _unusable(rollout.spec.to, classes, nodes)
    )


def find_return_obstacle(rollout: RuntimeRollout, classes: Classes) -> Obstacle | None:
    """Return the obstacle that keeps a rollout from moving workloads back, None if free."""
    name = rollout.spec.from_
    if name in classes:
        return None
    return Obstacle(
        "ClassMissing",
        f"RuntimeClass {name} does not exist, so pods of it would be refused; create it again",
    )


def is_active(rollout: RuntimeRollout) -> bool:
    """Return whether a rollout may still move workloads."""
    return rollout.status.phase not in (DONE, ROLLED_BACK)


def _bad_selector(rollout: RuntimeRollout) -> Obstacle | None:
    selectors: tuple[tuple[str, Raw | None], ...] = (
        ("namespaceSelector", rollout.spec.namespace_selector),
        ("workloadSelector", rollout.spec.workload_selector),
    )
    for field, selector in selectors:
        try:
            from_object(selector)
        except ValueError as error:
            return Obstacle("InvalidSelector", f"spec.{field}: {error}")
    return None


def _conflict(rollout: RuntimeRollout, others: Iterable[RuntimeRollout]) -> Obstacle | None:
    """Return the first active rollout, which goes first, whose classes overlap.

    One that is blocked by something else, and has not begun, lets others go first.
    """
    first = min(
        (
            other
            for other in others
            if other.metadata.uid != rollout.metadata.uid
            and is_active(other)
            and not _is_stuck(other)
            and _overlap(rollout, other)
            and _precedence(other) < _precedence(rollout)
        ),
        key=_precedence,
        default=None,
    )
    if first is None:
        return None
    return Obstacle(
        OVERLAPS,
        f"RuntimeRollout {first.metadata.name} moves {first.spec.from_} to {first.spec.to}; "
        "wait for its end or delete it",
    )


def _is_stuck(rollout: RuntimeRollout) -> bool:
    """Return whether a rollout has moved nothing, for a reason other than another rollout."""
    status = rollout.status
    reasons = {one.reason for one in status.conditions if one.type == ACCEPTED}
    return status.phase == BLOCKED and status.started_at is None and OVERLAPS not in reasons


def _overlap(rollout: RuntimeRollout, other: RuntimeRollout) -> bool:
    """Return whether two rollouts move the same workloads, or one moves what the other has moved.

    Selectors do not count: whether two of them share a workload can change at any time.
    """
    return rollout.spec.from_ in (other.spec.from_, other.spec.to) or (
        rollout.spec.to == other.spec.from_
    )


def _precedence(rollout: RuntimeRollout) -> tuple[bool, str, str]:
    """Return a sort key: rollouts that have begun first, then the older ones."""
    meta = rollout.metadata
    return rollout.status.started_at is None, meta.creation_timestamp or "", meta.name


def _unusable(name: str, classes: Classes, nodes: Collection[NodeFacts]) -> Obstacle | None:
    target = classes.get(name)
    if target is None:
        return Obstacle("ClassMissing", f"RuntimeClass {name} does not exist; create it")
    selector = from_labels(target.scheduling.node_selector if target.scheduling else {})
    selected = [node for node in nodes if selector.matches(node.labels)]
    if any(node.handlers is None or target.handler in node.handlers for node in selected):
        return None
    where = "that the class selects" if selector.requirements else "of the cluster"
    return Obstacle(
        "HandlerMissing",
        f"no node {where} has the handler {target.handler} of RuntimeClass {name} "
        f"({len(selected)} of {len(nodes)} nodes looked at); install it on one",
    )
