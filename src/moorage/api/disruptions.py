"""PodDisruptionBudgets, as controllers, scheduler and evictions read them. Source: policy/v1."""

from __future__ import annotations

import msgspec

from moorage.api.meta import Condition, Object, ObjectMeta, Raw

DISRUPTION_TARGET = "DisruptionTarget"
"""Condition of a pod that is about to be deleted by a disruption."""

DISRUPTION_ALLOWED = "DisruptionAllowed"
"""Condition of a budget: whether it permits a disruption now."""

SYNC_FAILED = "SyncFailed"
"""Reason of the condition where the expected pods cannot be counted."""

BUDGET_CAUSE = "DisruptionBudget"
"""Cause of the Status that refuses an eviction."""


class PodDisruptionBudgetSpec(Object, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: Raw | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Object, frozen=True):
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


def with_condition(status: PodDisruptionBudgetStatus, new: Condition) -> PodDisruptionBudgetStatus:
    """Set the condition of a type, whose transition time changes with its status alone."""
    conditions = []
    is_there = False
    for present in status.conditions:
        if present.type == new.type:
            is_there = True
            if present.status == new.status:
                since = present.last_transition_time
                new = msgspec.structs.replace(new, last_transition_time=since)
            present = new
        conditions.append(present)
    if not is_there:
        conditions.append(new)
    return msgspec.structs.replace(status, conditions=tuple(conditions))


def with_permission(status: PodDisruptionBudgetStatus, now: str) -> PodDisruptionBudgetStatus:
    """Set the condition that says whether disruptions are allowed."""
    is_allowed = status.disruptions_allowed > 0
    return with_condition(
        status,
        Condition(
            type=DISRUPTION_ALLOWED,
            status="True" if is_allowed else "False",
            reason="SufficientPods" if is_allowed else "InsufficientPods",
            observed_generation=status.observed_generation,
            last_transition_time=now,
        ),
    )
