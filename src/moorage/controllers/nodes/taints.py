"""Taints derived from a node's conditions, and how long pods tolerate them. Pure.

Source: API docs "Taints and Tolerations": taint nodes by condition, taint-based evictions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.nodes import Taint
from moorage.api.pods import Toleration
from moorage.api.tolerations import NO_SCHEDULE, tolerates
from moorage.controllers.nodes.conditions import FALSE, READY, TRUE, UNKNOWN
from moorage.controllers.objects import Node

NO_EXECUTE = "NoExecute"

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

_BY_CONDITION = {
    (READY, FALSE): NOT_READY,
    (READY, UNKNOWN): UNREACHABLE,
    ("MemoryPressure", TRUE): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", TRUE): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", TRUE): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", TRUE): "node.kubernetes.io/pid-pressure",
}
_NO_SCHEDULE_KEYS = frozenset({*_BY_CONDITION.values(), UNSCHEDULABLE})
_EVICTING_KEYS = (NOT_READY, UNREACHABLE)


def evicting_key(ready: str | None) -> str | None:
    """Return the key of the NoExecute taint for a Ready status; None if it requires none."""
    return _BY_CONDITION.get((READY, ready)) if ready is not None else None


def has_evicting_taint(node: Node) -> bool:
    """Return whether the node has a NoExecute taint for being not ready or unreachable."""
    return any(
        taint.effect == NO_EXECUTE and taint.key in _EVICTING_KEYS for taint in node.spec.taints
    )


def taints_after(node: Node, evicting: str | None, now: datetime) -> tuple[Taint, ...]:
    """Return the node's desired taints. Foreign taints and correct ones are kept unchanged.

    `evicting` is the key of the NoExecute taint for a lost node; None without one.
    """
    wanted = [(key, NO_SCHEDULE) for key in _no_schedule_keys(node)]
    if evicting is not None:
        wanted.append((evicting, NO_EXECUTE))
    kept = [
        taint for taint in node.spec.taints if not _is_ours(taint) or _identity(taint) in wanted
    ]
    present = {_identity(taint) for taint in kept}
    stamp = format_time(now)
    added = [
        Taint(key=key, effect=effect, time_added=stamp)
        for key, effect in wanted
        if (key, effect) not in present
    ]
    return (*kept, *added)


def seconds_borne(taints: Sequence[Taint], tolerations: Collection[Toleration]) -> float | None:
    """Return the seconds a pod tolerates these NoExecute taints: 0 not at all, None for ever."""
    borne: list[Toleration] = []
    for taint in taints:
        matching = next(
            (toleration for toleration in tolerations if tolerates(toleration, taint)), None
        )
        if matching is None:
            return 0.0
        borne.append(matching)
    limits = [
        toleration.toleration_seconds
        for toleration in borne
        if toleration.toleration_seconds is not None
    ]
    return max(0.0, float(min(limits))) if limits else None


def no_execute(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE)


def _no_schedule_keys(node: Node) -> list[str]:
    conditions = ((condition.type, condition.status) for condition in node.status.conditions)
    keys = [_BY_CONDITION[condition] for condition in conditions if condition in _BY_CONDITION]
    return [*keys, UNSCHEDULABLE] if node.spec.unschedulable else keys


def _is_ours(taint: Taint) -> bool:
    keys: Collection[str] = _NO_SCHEDULE_KEYS if taint.effect == NO_SCHEDULE else ()
    return taint.key in (_EVICTING_KEYS if taint.effect == NO_EXECUTE else keys)


def _identity(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect
