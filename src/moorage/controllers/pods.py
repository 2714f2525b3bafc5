"""Pod status as controllers count it. Source: core/v1, `podutil`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from moorage.api import conditions
from moorage.api.clock import parse_time
from moorage.api.pod_phases import ENDED_PHASES
from moorage.api.pods import PodCondition
from moorage.controllers.objects import Pod


def is_ended(pod: Pod) -> bool:
    """Return whether the pod has ended: none of its containers will run again."""
    return pod.status.phase in ENDED_PHASES


def is_deleting(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: Pod) -> bool:
    """Return whether the pod counts as a replica: neither ended nor being deleted."""
    return not is_ended(pod) and not is_deleting(pod)


def is_terminating(pod: Pod) -> bool:
    return is_deleting(pod) and not is_ended(pod)


def ready_condition(pod: Pod) -> PodCondition | None:
    return next(
        (condition for condition in pod.status.conditions if condition.type == conditions.READY),
        None,
    )


def is_ready(pod: Pod) -> bool:
    return conditions.is_ready(pod.status.conditions)


def ready_since(pod: Pod) -> datetime | None:
    """Return when the pod became ready; None if it is not, or its condition has no time."""
    condition = ready_condition(pod)
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return None
    return parse_time(condition.last_transition_time)


def seconds_until_available(pod: Pod, min_ready_s: int, now: datetime) -> float | None:
    """Return the seconds until the pod is available: 0 if it is, None if it is not ready."""
    if not is_ready(pod):
        return None
    if min_ready_s == 0:
        return 0.0
    since = ready_since(pod)
    if since is None:
        return None
    return max(0.0, min_ready_s - (now - since).total_seconds())


def next_available_s(active: Iterable[Pod], min_ready_s: int, now: datetime) -> float | None:
    """Return the seconds until the next ready pod becomes available; None without one."""
    waits = (seconds_until_available(pod, min_ready_s, now) for pod in active)
    return min((wait for wait in waits if wait), default=None)
