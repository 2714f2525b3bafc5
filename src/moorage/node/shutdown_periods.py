"""Shutdown periods: in which order pods end when the host shuts down, and with how much time. Pure.

Pods are grouped by priority, the lowest first. Source: KubeletConfiguration `shutdownGracePeriod`,
`shutdownGracePeriodCriticalPods`, `shutdownGracePeriodByPodPriority`; kubelet
`nodeshutdown_manager.go` `migrateConfig`, `groupByPriority`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

_SYSTEM_CRITICAL_PRIORITY = 2_000_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ShutdownPeriod:
    """How long pods from a priority on, up to the next period's, have to end: whole seconds."""

    priority: int
    grace_s: int


def periods_of(
    total_s: float, critical_s: float, by_priority: Sequence[ShutdownPeriod]
) -> tuple[ShutdownPeriod, ...]:
    """Return the periods that the three settings make, the lowest priority first; empty for none.

    Raises ValueError for settings that upstream refuses.
    """
    if critical_s > total_s:
        raise ValueError(
            f"shutdownGracePeriodCriticalPods {critical_s:g}s must be <= "
            f"shutdownGracePeriod {total_s:g}s"
        )
    for name, value in (
        ("shutdownGracePeriod", total_s),
        ("shutdownGracePeriodCriticalPods", critical_s),
    ):
        if value and value < 1:
            raise ValueError(f"{name} {value:g}s must be either zero or otherwise >= 1 sec")
    if by_priority and (total_s or critical_s):
        raise ValueError(
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod "
            "at the same time"
        )
    if by_priority:
        return tuple(sorted(by_priority))
    if not total_s:
        return ()
    return (
        ShutdownPeriod(0, int(total_s - critical_s)),
        ShutdownPeriod(_SYSTEM_CRITICAL_PRIORITY, int(critical_s)),
    )


def grouped(
    periods: Sequence[ShutdownPeriod], pods: Iterable[T], priority: Callable[[T], int]
) -> list[tuple[ShutdownPeriod, list[T]]]:
    """Return the pods of each period that has any, in the order in which they end.

    A pod below the lowest priority belongs to the first period.
    """
    groups: list[tuple[ShutdownPeriod, list[T]]] = [(period, []) for period in periods]
    for pod in pods:
        below = [group for group in groups if group[0].priority <= priority(pod)]
        (below or groups)[-1 if below else 0][1].append(pod)
    return [group for group in groups if group[1]]
