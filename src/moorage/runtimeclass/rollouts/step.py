"""Step of a rollout: from its status and what is seen to moves and a new status.

A state machine without clock and memory: which workloads were moved is recorded in the status,
which is written before they are. A step that was cut off before its status was written, or between
two moves, is repeated and ends the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from moorage.api.clock import format_time, parse_time
from moorage.api.runtime_rollouts import (
    ACCEPTED,
    BLOCKED,
    COMPLETED,
    DONE,
    HEALTHY,
    MOST_MOVED,
    PAUSED,
    PROGRESSING,
    ROLLBACK,
    ROLLED_BACK,
    ROLLING_BACK,
    STOPPED,
    RolloutStop,
    RolloutWorkload,
    RuntimeRollout,
    RuntimeRolloutStatus,
)
from moorage.api.text import counted
from moorage.runtimeclass.rollouts.assessment import Assessed, State, assess, bears_mark
from moorage.runtimeclass.rollouts.obstacles import Mark, Obstacle, Unmovable, Workload
from moorage.runtimeclass.rollouts.record import Record, only, record_of, with_moves
from moorage.runtimeclass.rollouts.report import (
    MESSAGE_LIMIT,
    counts_of,
    entries_of,
    with_condition,
)
from moorage.runtimeclass.rollouts.waves import Wave, in_order, next_wave, present_wave

_NAMED = 3
_FULL = Obstacle(
    "TooManyWorkloads",
    f"the rollout has moved {MOST_MOVED} workloads, as many as its status can record; move the "
    "others by another rollout once this one is deleted",
)


class Observation(msgspec.Struct, frozen=True):
    """What is true now: workloads of the old class, those that were moved, and obstacles.

    `workloads` may hold others too; they are left alone.
    """

    workloads: Sequence[Workload] = ()
    unmovable: Sequence[Unmovable] = ()
    obstacle: Obstacle | None = None
    return_obstacle: Obstacle | None = None


class Move(msgspec.Struct, frozen=True):
    """A change of a workload's class. `mark` replaces its mark, None removes it."""

    workload: Workload
    class_name: str
    mark: Mark | None


class Step(msgspec.Struct, frozen=True):
    """The status to write first, then the moves; `due` is when to look again at the latest."""

    status: RuntimeRolloutStatus
    moves: tuple[Move, ...] = ()
    due: datetime | None = None


def step(rollout: RuntimeRollout, seen: Observation, now: datetime) -> Step:
    """Return a rollout's next status and moves."""
    status, spec = rollout.status, rollout.spec
    stop = standing_stop(rollout)
    goes_back = spec.rollback or (stop is not None and stop.rolls_back)
    if status.phase == (ROLLED_BACK if goes_back else DONE):
        return Step(_observed(rollout, status))
    base = msgspec.structs.replace(
        _observed(rollout, status), stop=stop, completed_at=None, phase=PROGRESSING
    )
    if goes_back:
        return _back(rollout, base, seen, now)
    return _forward(rollout, base, seen, now)


def standing_stop(rollout: RuntimeRollout) -> RolloutStop | None:
    """Return why gates have stopped the rollout, None if they have not or it was resumed since."""
    stop, resumed_at = rollout.status.stop, rollout.spec.resumed_at
    if stop is None or resumed_at is None or parse_time(stop.time) > parse_time(resumed_at):
        return stop
    return None


def _observed(rollout: RuntimeRollout, status: RuntimeRolloutStatus) -> RuntimeRolloutStatus:
    return msgspec.structs.replace(status, observed_generation=rollout.metadata.generation)


def _forward(
    rollout: RuntimeRollout, base: RuntimeRolloutStatus, seen: Observation, now: datetime
) -> Step:
    spec = rollout.spec
    present = {workload.uid for workload in seen.workloads}
    base = msgspec.structs.replace(base, moves=only(base.moves, present))
    record = record_of(base.moves)
    assessed = _assess_all(rollout, seen, record, now)
    total = len(assessed)
    moved = [one.wave for one in assessed if one.is_moved]
    wave = present_wave(spec.canary, spec.wave_size, moved, total)
    base = _reported(base, assessed, seen, wave)
    stop = base.stop or _new_stop(rollout, assessed, now)
    if stop is not None:
        return _stopped(rollout, base, stop, seen, now)
    if seen.obstacle is not None:
        phase = msgspec.structs.replace(base, phase=BLOCKED)
        return Step(_conditions(rollout, phase, seen.obstacle, now), due=_due(assessed))
    if spec.paused:
        phase = msgspec.structs.replace(base, phase=PAUSED)
        return Step(_conditions(rollout, phase, None, now), due=_due(assessed))
    pending = in_order(one.workload for one in assessed if one.state is State.PENDING)
    pending, is_full = _recordable(pending, record)
    moving = sum(one.state is State.MOVING for one in assessed)
    if is_full and not pending and not moving:
        phase = msgspec.structs.replace(base, phase=BLOCKED)
        return Step(_conditions(rollout, phase, _FULL, now))
    if not pending and not moving:
        done = msgspec.structs.replace(base, phase=DONE, completed_at=format_time(now))
        return Step(_conditions(rollout, done, None, now))
    if not wave.room and not moving:
        wave = next_wave(wave, spec.canary, spec.wave_size, total)
    room = min(wave.room, max(0, wave.size - moving))
    meta = rollout.metadata
    mark = Mark(meta.name, meta.uid, spec.from_, _whole_second(now), wave.number)
    moves = tuple(Move(workload, spec.to, mark) for workload in pending[:room])
    uids = [move.workload.uid for move in moves]
    base = msgspec.structs.replace(
        base,
        wave=wave.number,
        wave_size=wave.size,
        moves=with_moves(base.moves, uids, mark.wave, mark.moved_at),
        started_at=base.started_at or (format_time(now) if moves or moved else None),
    )
    return Step(_conditions(rollout, base, None, now), moves, _due(assessed))


def _back(
    rollout: RuntimeRollout, base: RuntimeRolloutStatus, seen: Observation, now: datetime
) -> Step:
    """Give every workload that was moved its class back, all at once.

    Workloads whose class someone changed since keep it.
    """
    spec = rollout.spec
    record = record_of(base.moves)
    moved = [workload for workload in seen.workloads if _goes_back(rollout, workload, record)]
    assessed = [_returned(rollout, workload, record, now) for workload in seen.workloads]
    assessed = [one for one in assessed if one.state is not State.OTHER]
    base = msgspec.structs.replace(
        base,
        moves=only(base.moves, {workload.uid for workload in moved}),
        counts=counts_of(assessed, len(seen.unmovable)),
        workloads=entries_of(assessed, seen.unmovable),
        phase=ROLLING_BACK,
    )
    if moved and seen.return_obstacle is not None:
        return Step(_conditions(rollout, base, seen.return_obstacle, now))
    if moved and spec.paused:
        paused = msgspec.structs.replace(base, phase=PAUSED)
        return Step(_conditions(rollout, paused, None, now))
    if not moved:
        ended = msgspec.structs.replace(base, phase=ROLLED_BACK, completed_at=format_time(now))
        return Step(_conditions(rollout, ended, None, now))
    moves = tuple(Move(workload, spec.from_, None) for workload in moved)
    return Step(_conditions(rollout, base, None, now), moves)


def _goes_back(rollout: RuntimeRollout, workload: Workload, record: Record) -> bool:
    """Return whether a workload was moved and still has the new class, or the marks of the move."""
    if workload.uid not in record:
        return False
    if workload.class_name == rollout.spec.to:
        return True
    is_marked = bears_mark(rollout.metadata.uid, workload)
    return is_marked and workload.class_name == rollout.spec.from_


def _returned(
    rollout: RuntimeRollout, workload: Workload, record: Record, now: datetime
) -> Assessed:
    """Return the state of a workload while the rollout goes back: Pending once it is back."""
    spec = rollout.spec
    if workload.class_name == spec.from_:
        return Assessed(workload, State.PENDING, now)
    moved = record.get(workload.uid)
    if moved is not None and workload.class_name == spec.to:
        state, reason = (State.FAILED, "Refused") if workload.refusal else (State.MOVED, "")
        return Assessed(workload, state, now, reason, workload.refusal, wave=moved.wave)
    return Assessed(workload, State.OTHER, now)


def _recordable(pending: list[Workload], record: Record) -> tuple[list[Workload], bool]:
    """Return the workloads whose move the status can record, and whether others are left out."""
    room = MOST_MOVED - len(record)
    kept = []
    for workload in pending:
        if workload.uid in record:
            kept.append(workload)
        elif room > 0:
            kept.append(workload)
            room -= 1
    return kept, len(kept) < len(pending)


def _assess_all(
    rollout: RuntimeRollout, seen: Observation, record: Record, now: datetime
) -> list[Assessed]:
    before: dict[tuple[str, str, str], RolloutWorkload] = {
        (entry.kind, entry.namespace, entry.name): entry for entry in rollout.status.workloads
    }
    assessed = (
        assess(
            rollout.metadata.uid,
            rollout.spec,
            workload,
            record.get(workload.uid),
            before.get((workload.kind, workload.namespace, workload.name)),
            now,
        )
        for workload in seen.workloads
    )
    return [one for one in assessed if one.state is not State.OTHER]


def _reported(
    base: RuntimeRolloutStatus, assessed: list[Assessed], seen: Observation, wave: Wave
) -> RuntimeRolloutStatus:
    return msgspec.structs.replace(
        base,
        counts=counts_of(assessed, len(seen.unmovable)),
        workloads=entries_of(assessed, seen.unmovable),
        wave=wave.number if base.started_at else 0,
        wave_size=wave.size,
    )


def _new_stop(
    rollout: RuntimeRollout, assessed: list[Assessed], now: datetime
) -> RolloutStop | None:
    """Return why the rollout must stop: a class that was changed back, or too many failures.

    A class that goes back belongs to a tool or a person that writes it too, whom a rollback would
    not help: then a person decides.
    """
    reverted = [one for one in assessed if one.state is State.REVERTED]
    if reverted:
        message = (
            f"{_named(reverted)} got {rollout.spec.from_} back after the move: another writer owns "
            "the template (Helm, GitOps, an operator); change the class at its source, then resume"
        )
        return RolloutStop(reason="Reverted", message=message, time=format_time(now))
    failed = [one for one in assessed if one.state is State.FAILED]
    tried = len(failed) + sum(one.is_moved and one.state is not State.FAILED for one in assessed)
    limit = rollout.spec.gates.max_failure_percent
    if 100 * len(failed) <= limit * tried:
        return None
    message = (
        f"{len(failed)} of {tried} moved workloads violate a gate, {limit}% are allowed: "
        f"{_named(failed)}"
    )
    return RolloutStop(
        reason=failed[0].reason,
        message=message,
        time=format_time(now),
        rolls_back=rollout.spec.on_failure == ROLLBACK,
    )


def _named(assessed: list[Assessed]) -> str:
    shown = [
        f"{one.workload.title} ({one.message[:MESSAGE_LIMIT]})"
        if one.state is State.FAILED
        else one.workload.title
        for one in assessed[:_NAMED]
    ]
    more = len(assessed) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _stopped(
    rollout: RuntimeRollout,
    base: RuntimeRolloutStatus,
    stop: RolloutStop,
    seen: Observation,
    now: datetime,
) -> Step:
    """Record the stop; a rollback because of it begins with the next step, once it is stored."""
    phase = ROLLING_BACK if stop.rolls_back else STOPPED
    status = msgspec.structs.replace(base, stop=stop, phase=phase)
    return Step(_conditions(rollout, status, seen.obstacle, now))


def _having(count: int, class_name: str) -> str:
    return f"{counted(count, 'workload')} {'has' if count == 1 else 'have'} the class {class_name}"


def _conditions(
    rollout: RuntimeRollout,
    status: RuntimeRolloutStatus,
    obstacle: Obstacle | None,
    now: datetime,
) -> RuntimeRolloutStatus:
    stop = status.stop
    is_done = status.phase in (DONE, ROLLED_BACK)
    counts = status.counts
    outcome = "every workload has its class back"
    if status.phase == DONE:
        outcome = _having(counts.moved + counts.held, rollout.spec.to)
        if counts.held:
            outcome += f"; pods of {counts.held} wait until someone replaces them"
        if counts.failed:
            outcome += f"; {counts.failed} violate a gate"
    rows = (
        (
            ACCEPTED,
            obstacle is None,
            obstacle.reason if obstacle else "Accepted",
            obstacle.message if obstacle else "workloads can be moved",
        ),
        (
            HEALTHY,
            stop is None,
            stop.reason if stop else "GatesHold",
            stop.message if stop else "all gates hold",
        ),
        (
            COMPLETED,
            is_done,
            status.phase,
            outcome if is_done else _having(counts.pending, rollout.spec.from_),
        ),
    )
    conditions = status.conditions
    for type_, holds, reason, message in rows:
        conditions = with_condition(
            conditions,
            type_,
            holds=holds,
            reason=reason,
            message=message,
            generation=rollout.metadata.generation,
            now=now,
        )
    return msgspec.structs.replace(status, conditions=conditions)


def _due(assessed: list[Assessed]) -> datetime | None:
    return min((one.due for one in assessed if one.due is not None), default=None)


def _whole_second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
