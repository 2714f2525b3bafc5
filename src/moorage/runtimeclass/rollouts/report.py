"""Report of a rollout: its status, from the states of its workloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from moorage.api.clock import format_time
from moorage.api.conditions import transitioned
from moorage.api.meta import Condition
from moorage.api.runtime_rollouts import MOST_LISTED, RolloutCounts, RolloutWorkload
from moorage.runtimeclass.rollouts.assessment import Assessed, State
from moorage.runtimeclass.rollouts.obstacles import Unmovable

UNMOVABLE = "Unmovable"

_MOST_UNMOVABLE = 32
MESSAGE_LIMIT = 512
"""Limit on the characters of what is said of a workload, which may be a webhook's words."""
_FIRST = (State.REVERTED, State.FAILED, State.MOVING, State.HELD)


def counts_of(workloads: Iterable[Assessed], unmovable: int) -> RolloutCounts:
    """Return how many workloads are in each state."""
    numbers = dict.fromkeys(State, 0)
    for assessed in workloads:
        numbers[assessed.state] += 1
    del numbers[State.OTHER]
    return RolloutCounts(
        total=sum(numbers.values()),
        unmovable=unmovable,
        **{state.lower(): number for state, number in numbers.items()},
    )


def entries_of(
    workloads: Iterable[Assessed], unmovable: Sequence[Unmovable]
) -> tuple[RolloutWorkload, ...]:
    """Return the entries of a status, at most MOST_LISTED.

    Those that need attention come first, then 32 that cannot be moved, then the latest moved.
    """
    by_state: dict[State, list[Assessed]] = {state: [] for state in State}
    for assessed in workloads:
        by_state[assessed.state].append(assessed)
    entries = [_entry(one) for state in _FIRST for one in _latest(by_state[state])]
    entries += [
        RolloutWorkload(
            kind=one.kind,
            namespace=one.namespace,
            name=one.name,
            state=UNMOVABLE,
            message=one.why[:MESSAGE_LIMIT],
        )
        for one in islice(unmovable, _MOST_UNMOVABLE)
    ]
    entries += [_entry(one) for one in _latest(by_state[State.MOVED])]
    return tuple(entries[:MOST_LISTED])


def _latest(workloads: list[Assessed]) -> list[Assessed]:
    """Return the workloads by wave, the last wave first, then by name."""
    return sorted(workloads, key=lambda one: (-one.wave, one.workload.title))


def _entry(assessed: Assessed) -> RolloutWorkload:
    workload = assessed.workload
    return RolloutWorkload(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        state=assessed.state.value,
        message=assessed.message[:MESSAGE_LIMIT],
        wave=assessed.wave,
        since=format_time(assessed.since),
    )


def with_condition(
    conditions: tuple[Condition, ...],
    type_: str,
    *,
    holds: bool,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions with one replaced; its transition time changes with its status."""
    new = transitioned(
        conditions,
        type_,
        holds=holds,
        reason=reason,
        message=message,
        stamp=format_time(now),
        generation=generation,
    )
    return (*(one for one in conditions if one.type != type_), new)
