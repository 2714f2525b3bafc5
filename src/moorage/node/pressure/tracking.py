"""Node pressure over time: which conditions hold, and which thresholds call for an eviction.

`track` takes the state before and the observations of one moment, and returns the state after. A
soft threshold is due when it has been met for its grace period; a condition stays for the
transition period after the last threshold of it was met. Source: kubelet
`eviction_manager.go` `synchronize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moorage.node.pressure.signals import CONDITIONS, SIGNALS, Observations
from moorage.node.pressure.thresholds import Threshold, met


@dataclass(frozen=True, slots=True)
class PressureState:
    """What is remembered between two looks; times are monotonic seconds.

    `due` are the thresholds that were met for their grace period at the last look, `conditions` the
    node conditions that hold.
    """

    first_met_s: Mapping[Threshold, float] = field(default_factory=dict)
    condition_seen_s: Mapping[str, float] = field(default_factory=dict)
    due: tuple[Threshold, ...] = ()
    conditions: tuple[str, ...] = ()


def track(
    state: PressureState,
    thresholds: Sequence[Threshold],
    observations: Observations,
    now_s: float,
    transition_s: float,
) -> PressureState:
    """Return the state after a look."""
    unresolved = met(state.due, observations, with_reclaim=True)
    present = met(thresholds, observations, with_reclaim=False)
    current = [one for one in thresholds if one in present or one in unresolved]
    first = {one: state.first_met_s.get(one, now_s) for one in current}
    seen = dict(state.condition_seen_s) | {SIGNALS[one.signal].condition: now_s for one in current}
    return PressureState(
        first_met_s=first,
        condition_seen_s=seen,
        due=tuple(one for one in current if now_s - first[one] >= one.grace_s),
        conditions=tuple(
            name
            for name in CONDITIONS
            if name in seen and (seen[name] == now_s or now_s - seen[name] < transition_s)
        ),
    )
