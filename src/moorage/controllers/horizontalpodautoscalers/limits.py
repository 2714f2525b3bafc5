"""Limits of scaling: what becomes of a proposal by history, policies and bounds, pure.

    proposal ─▶ stabilized: the least (greatest) of what was proposed in a window
             ─▶ limited: as many pods as the policies allow in their periods, within the bounds

Source: API docs "Horizontal Pod Autoscaling", configurable scaling behavior; KEP-853.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from moorage.api.autoscaling import Behavior, ScalingPolicy, ScalingRules

_UP_FACTOR = 2
_UP_MINIMUM = 4
_LARGEST = 2**31 - 1

_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_UP_LIMIT = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
_DOWN_LIMIT = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)
_UP_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_DOWN_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent "
    "recommendation",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A number at a monotonic time: a recommendation, or by how much there was a change."""

    count: int
    at_s: float


@dataclass(frozen=True, slots=True)
class History:
    """What was recommended and done for one autoscaler, as far as it still matters."""

    recommendations: tuple[Moment, ...] = ()
    added: tuple[Moment, ...] = ()
    removed: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """A number of replicas, and the reason and message for the condition that shows it."""

    replicas: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and greatest number of replicas."""

    minimum: int
    maximum: int


def recommended(history: History, desired: int, now_s: float, kept_s: float) -> History:
    """Return the history with a recommendation; those older than `kept_s` are dropped."""
    kept = tuple(past for past in history.recommendations if past.at_s >= now_s - kept_s)
    return History((*kept, Moment(desired, now_s)), history.added, history.removed)


def scaled(history: History, behavior: Behavior, before: int, after: int, now_s: float) -> History:
    """Return the history with a change; those older than the longest policy are dropped."""
    added = _recent(history.added, behavior.scale_up, now_s)
    removed = _recent(history.removed, behavior.scale_down, now_s)
    if after > before:
        added = (*added, Moment(after - before, now_s))
    else:
        removed = (*removed, Moment(before - after, now_s))
    return History(history.recommendations, added, removed)


def _recent(past: Iterable[Moment], rules: ScalingRules, now_s: float) -> tuple[Moment, ...]:
    # A policy of one direction also looks at changes in the other, so both are kept that long.
    longest_s = max((policy.period_seconds for policy in rules.policies), default=0)
    return tuple(one for one in past if one.at_s >= now_s - longest_s)


def stabilize_down(history: History, desired: int, window_s: float, now_s: float) -> Decision:
    """Return the greatest recommendation of the window: what holds without a behavior."""
    past = [one.count for one in history.recommendations if one.at_s >= now_s - window_s]
    greatest = max((desired, *past))
    return Decision(greatest, *_DOWN_STABILIZED)


def stabilize(
    history: History, behavior: Behavior, current: int, desired: int, now_s: float
) -> Decision:
    """Return the replicas within what was recommended in the windows of both directions.

    Both windows must be set.
    """
    up_s = behavior.scale_up.stabilization_window_seconds or 0
    down_s = behavior.scale_down.stabilization_window_seconds or 0
    past = history.recommendations
    lowest = min((desired, *(one.count for one in past if one.at_s > now_s - up_s)))
    highest = max((desired, *(one.count for one in past if one.at_s > now_s - down_s)))
    replicas = min(max(current, lowest), highest)
    return Decision(replicas, *(_UP_STABILIZED if desired >= current else _DOWN_STABILIZED))


def limit(current: int, desired: int, bounds: Bounds) -> Decision:
    """Return the replicas within the bounds and twice the present number, at least four."""
    rate = max(_UP_FACTOR * current, _UP_MINIMUM)
    if desired < bounds.minimum:
        return Decision(bounds.minimum, *_TOO_FEW)
    if desired > min(bounds.maximum, rate):
        if bounds.maximum > rate:
            return Decision(rate, *_UP_LIMIT)
        return Decision(bounds.maximum, *_TOO_MANY)
    return Decision(desired, *_WITHIN)


def limit_by_policies(
    history: History,
    behavior: Behavior,
    current: int,
    desired: int,
    bounds: Bounds,
    now_s: float,
) -> Decision:
    """Return the replicas within the bounds and what the policies allow in their periods."""
    if desired > current:
        rate = max(_up_limit(history, behavior.scale_up, current, now_s), current)
        if desired > min(bounds.maximum, rate):
            if bounds.maximum > rate:
                return Decision(rate, *_UP_LIMIT)
            return Decision(bounds.maximum, *_TOO_MANY)
    elif desired < current:
        rate = min(_down_limit(history, behavior.scale_down, current, now_s), current)
        if desired < max(bounds.minimum, rate):
            if bounds.minimum < rate:
                return Decision(rate, *_DOWN_LIMIT)
            return Decision(bounds.minimum, *_TOO_FEW)
    return Decision(desired, *_WITHIN)


def _up_limit(history: History, rules: ScalingRules, current: int, now_s: float) -> int:
    def allowed(policy: ScalingPolicy) -> int:
        start = _at_start(history, policy, current, now_s)
        if policy.type == "Pods":
            return start + policy.value
        # Rounded up, or a small number would never grow. The factor comes first, as upstream: 10 %
        # more than 100 is 111.
        return math.ceil(start * (1 + policy.value / 100))

    return _chosen(rules, current, allowed, most=max, least=min)


def _down_limit(history: History, rules: ScalingRules, current: int, now_s: float) -> int:
    def allowed(policy: ScalingPolicy) -> int:
        start = _at_start(history, policy, current, now_s)
        if policy.type == "Pods":
            return start - policy.value
        return math.trunc(start * (1 - policy.value / 100))

    return _chosen(rules, current, allowed, most=min, least=max)


def _chosen(
    rules: ScalingRules,
    current: int,
    allowed: Callable[[ScalingPolicy], int],
    *,
    most: Callable[[Iterable[int]], int],
    least: Callable[[Iterable[int]], int],
) -> int:
    if rules.select_policy == "Disabled" or not rules.policies:
        return current
    choose = least if rules.select_policy == "Min" else most
    return max(-_LARGEST, min(choose(map(allowed, rules.policies)), _LARGEST))


def _at_start(history: History, policy: ScalingPolicy, current: int, now_s: float) -> int:
    """Return the replicas when the policy's period began."""
    since_s = now_s - policy.period_seconds
    added = sum(one.count for one in history.added if one.at_s > since_s)
    removed = sum(one.count for one in history.removed if one.at_s > since_s)
    return current - added + removed
