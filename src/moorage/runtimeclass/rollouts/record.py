"""Record of moves: which workloads a rollout has moved, in its status.

A uid is recorded before its workload is patched. So a recorded workload that still has its old
class may never have been moved: then its annotations do not name the rollout.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from moorage.api.clock import format_time, parse_time
from moorage.api.runtime_rollouts import RolloutMoves


class Moved(msgspec.Struct, frozen=True):
    """When and in which wave a workload was moved."""

    at: datetime
    wave: int


Record = dict[str, Moved]
"""Moves by the uid of the workload."""


def record_of(moves: Sequence[RolloutMoves]) -> Record:
    """Return the moves of a status by the uid of the workload."""
    record: Record = {}
    for group in moves:
        moved = Moved(parse_time(group.time), group.wave)
        record |= dict.fromkeys(group.uids, moved)
    return record


def with_moves(
    moves: Sequence[RolloutMoves], uids: Sequence[str], wave: int, at: datetime
) -> tuple[RolloutMoves, ...]:
    """Return the moves with new ones, which replace earlier ones of the same workloads."""
    if not uids:
        return tuple(moves)
    kept = only(moves, record_of(moves).keys() - set(uids))
    return (*kept, RolloutMoves(wave, format_time(at), tuple(uids)))


def only(moves: Sequence[RolloutMoves], uids: Collection[str]) -> tuple[RolloutMoves, ...]:
    """Return the moves of certain workloads."""
    kept = (
        msgspec.structs.replace(group, uids=tuple(uid for uid in group.uids if uid in uids))
        for group in moves
    )
    return tuple(group for group in kept if group.uids)
