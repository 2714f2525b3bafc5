"""Waves: which workloads are moved next, and how many.

The number of a workload's wave is recorded with its move, so a wave that was cut off by a restart
is known by its members and filled up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moorage.runtimeclass.rollouts.obstacles import Workload


class Wave(msgspec.Struct, frozen=True):
    """The present wave: its number, how many workloads it may have, and how many it has."""

    number: int
    size: int
    members: int = 0

    @property
    def room(self) -> int:
        """Return how many workloads may still be moved in this wave."""
        return max(0, self.size - self.members)


def count_of(value: int | str, total: int) -> int:
    """Return a number, or a percentage of `total` rounded up. Raises ValueError for other text."""
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    return -(-int(value.removesuffix("%")) * total // 100)


def present_wave(
    canary: int | str, wave_size: int | str, numbers: Sequence[int], total: int
) -> Wave:
    """Return the last of the waves of the moved workloads; wave 1 if there are none."""
    number = max(numbers, default=1)
    return Wave(number, size_of(number, canary, wave_size, total), numbers.count(number))


def next_wave(wave: Wave, canary: int | str, wave_size: int | str, total: int) -> Wave:
    """Return the empty wave after this one."""
    number = wave.number + 1
    return Wave(number, size_of(number, canary, wave_size, total))


def size_of(number: int, canary: int | str, wave_size: int | str, total: int) -> int:
    """Return how many workloads a wave may move, at least one. The first is the canary, if any."""
    first = count_of(canary, total) if number == 1 else 0
    return first or max(1, count_of(wave_size, total))


def in_order(pending: Iterable[Workload]) -> list[Workload]:
    """Return workloads in the order in which they are moved.

    Those whose new pods prove something come first, the smallest before the others: a fault of
    the target then shows early, in few pods. Then those without pods, those that run on a
    schedule, and those whose pods wait for someone to act.
    """
    return sorted(pending, key=_order)


def _order(workload: Workload) -> tuple[int, int, str, str, str]:
    if workload.hold:
        rank = 3
    elif workload.is_on_schedule:
        rank = 2
    else:
        rank = 0 if workload.size else 1
    return rank, workload.size, workload.namespace, workload.kind, workload.name
