"""Success policy: which completion indexes are enough for an Indexed Job. Source: KEP-3998."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.api.completion_indexes import Interval, clamped_intervals, count
from moorage.api.jobs import SuccessPolicy, SuccessPolicyRule


def matched_rule(
    policy: SuccessPolicy | None, completions: int, succeeded: Sequence[Interval]
) -> int | None:
    """Return the position of the first rule that the succeeded indexes meet; None without one."""
    if policy is None or not succeeded:
        return None
    for position, rule in enumerate(policy.rules):
        if _is_met(rule, completions, succeeded):
            return position
    return None


def _is_met(rule: SuccessPolicyRule, completions: int, succeeded: Sequence[Interval]) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and count(succeeded) >= rule.succeeded_count
    required = clamped_intervals(rule.succeeded_indexes, completions)
    if not required:
        return False
    met = _common(required, succeeded)
    enough = count(required) if rule.succeeded_count is None else rule.succeeded_count
    return met == count(required) or met >= enough


def _common(one: Sequence[Interval], other: Sequence[Interval]) -> int:
    """Return how many indexes two ascending sequences of intervals have in common."""
    total, at, other_at = 0, 0, 0
    while at < len(one) and other_at < len(other):
        (first, last), (other_first, other_last) = one[at], other[other_at]
        total += max(0, min(last, other_last) - max(first, other_first) + 1)
        if last <= other_last:
            at += 1
        else:
            other_at += 1
    return total
