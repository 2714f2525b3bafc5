"""Bounds of a rollout: how many pods may be surplus, or unavailable.

Source: API docs "Max Unavailable", "Max Surge"; `ResolveFenceposts`.
"""

from __future__ import annotations

from moorage.api.workloads import Deployment
from moorage.controllers.templates import scaled

ROLLING_UPDATE = "RollingUpdate"


def is_rolling(deployment: Deployment) -> bool:
    return deployment.spec.strategy.type == ROLLING_UPDATE


def replicas_of(deployment: Deployment) -> int:
    """Return the desired number of pods."""
    return deployment.spec.replicas or 0


def max_surge(deployment: Deployment) -> int:
    """Return how many pods may exist above the desired number."""
    return _resolved(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """Return how many of the desired pods may be unavailable."""
    replicas = replicas_of(deployment)
    if not is_rolling(deployment) or replicas == 0:
        return 0
    return min(_resolved(deployment)[1], replicas)


def _resolved(deployment: Deployment) -> tuple[int, int]:
    rolling = deployment.spec.strategy.rolling_update
    if rolling is None:
        return 0, 1
    replicas = replicas_of(deployment)
    surge = scaled(rolling.max_surge, replicas, rounds_up=True)
    unavailable = scaled(rolling.max_unavailable, replicas, rounds_up=False)
    # Validation forbids two zeros, but two percentages may both round to nothing; something has
    # to move.
    return (surge, unavailable) if surge or unavailable else (0, 1)
