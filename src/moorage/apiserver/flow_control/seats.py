"""Seats of priority levels: how many each has, and who may take the next one.

Each level has its nominal seats, by its shares. Those of them that it may lend, and does not use,
are in a pool from which any level may take, up to its own upper limit; the rest is kept for the
level. So what one level lends is used at once, and it gets seats back as soon as requests in them
end: a level that has fewer than its nominal seats goes before those that borrow.

Pure; the owner says what a seat is for. Source: KEP-1040, except that upstream moves seats between
levels every ten seconds by smoothed demand (docs/decisions/100-seats-lent-at-once.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moorage.apiserver.flow_control.configuration import LevelConfiguration
from moorage.apiserver.flow_control.fair_queues import FairQueues, Waiting


@dataclass(frozen=True, slots=True)
class SeatLimits:
    """Seats of a level: its share, those it keeps at least, and those it may have at most."""

    nominal: int
    lower: int
    upper: int


def divide(total: int, levels: Iterable[LevelConfiguration]) -> dict[str, SeatLimits]:
    """Divide the server's seats among levels. Rounding up makes them a few more than `total`."""
    levels = list(levels)
    shares = sum(level.shares for level in levels) or 1
    return {level.name: _limits(total, level, shares) for level in levels}


def _limits(total: int, level: LevelConfiguration, shares: int) -> SeatLimits:
    nominal = math.ceil(total * level.shares / shares)
    lendable = _percentage(nominal, level.lendable_percent)
    percent = level.borrowing_percent
    borrowed = total if percent is None else _percentage(nominal, percent)
    return SeatLimits(nominal, nominal - lendable, nominal + borrowed)


def _percentage(number: int, percent: int) -> int:
    """Return a percentage, rounded half up."""
    return math.floor(number * percent / 100 + 0.5)


class Level:
    """A priority level with its seats and queues. `is_leaving`: its object is gone."""

    __slots__ = (
        "configuration", "in_use", "is_exempt", "is_leaving", "lower", "name", "nominal", "queues",
        "upper",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.configuration = LevelConfiguration(name=name)
        self.nominal = self.lower = self.upper = 0
        self.is_exempt = False
        self.is_leaving = False
        self.in_use = 0
        self.queues = FairQueues()

    @property
    def is_idle(self) -> bool:
        """Return whether no request has a seat or waits for one."""
        return not self.in_use and not self.queues.waiting

    def limit(self, limits: SeatLimits) -> None:
        """Set the limits that follow from the configuration."""
        self.is_exempt = self.configuration.is_exempt
        self.nominal, self.lower, self.upper = limits.nominal, limits.lower, limits.upper


class SeatPool:
    """The seats of all levels.

    `_occupied` are the seats that are in use or kept for their level; levels never keep more than
    there are, so a seat that is kept is always there.
    """

    def __init__(self) -> None:
        self.levels: dict[str, Level] = {}
        self._queued: set[Level] = set()
        self._total = 0
        self._occupied = 0

    def configure(self, levels: Mapping[str, LevelConfiguration], total: int) -> None:
        """Divide `total` seats among levels. Levels that are gone stay until they are idle."""
        for name, level in list(self.levels.items()):
            level.is_leaving = name not in levels
            if level.is_leaving and level.is_idle:
                del self.levels[name]
        for name, configuration in levels.items():
            self.levels.setdefault(name, Level(name)).configuration = configuration
        # Levels that are gone have their shares too, so that their last requests are served.
        divided = divide(total, [level.configuration for level in self.levels.values()])
        for name, level in self.levels.items():
            level.limit(divided[name])
        self._total = sum(level.nominal for level in self.levels.values())
        self._occupied = sum(max(level.in_use, level.lower) for level in self.levels.values())
        self.dispatch()

    def take(self, level: Level) -> bool:
        """Take a seat, unless there is none. Hot path.

        None that is free is waited for: it is given out at once when it becomes free.
        """
        in_use = level.in_use
        if in_use >= level.lower:
            if not (level.is_exempt or (in_use < level.upper and self._occupied < self._total)):
                return False
            self._occupied += 1
        level.in_use = in_use + 1
        return True

    def has_seat(self, level: Level) -> bool:
        """Return whether `take` would succeed. Hot path."""
        in_use = level.in_use
        return (
            in_use < level.lower
            or level.is_exempt
            or (in_use < level.upper and self._occupied < self._total)
        )

    def enqueue(self, level: Level, request: Waiting, hand: Sequence[int], limit: int) -> bool:
        """Let a request wait that got no seat. Returns False if its queue is full."""
        if not level.queues.enqueue(request, hand, limit):
            return False
        self._queued.add(level)
        return True

    def give_back(self, level: Level) -> None:
        """Return a seat, and give it to the next request that waits. Hot path."""
        if level.in_use > level.lower:
            self._occupied -= 1
        level.in_use -= 1
        if self._queued:
            self.dispatch()

    def dispatch(self) -> None:
        """Give seats to requests that wait, as far as there are seats."""
        while (level := self._next()) is not None:
            request = level.queues.pop()
            if not request.is_over:
                if level.in_use >= level.lower:
                    self._occupied += 1
                level.in_use += 1
                request.grant()
            elif request.queue is not None:
                level.queues.finish(request.queue, 0.0)

    def _next(self) -> Level | None:
        """Return the level that gets the next seat: the one with the least of its share in use."""
        self._queued = {level for level in self._queued if level.queues.waiting}
        able = [one for one in self._queued if self._may_take(one) and one.queues.is_ready]
        return min(able, key=_part_in_use, default=None)

    def _may_take(self, level: Level) -> bool:
        in_use = level.in_use
        return in_use < level.lower or (in_use < level.upper and self._occupied < self._total)


def _part_in_use(level: Level) -> float:
    return level.in_use / level.nominal if level.nominal else math.inf
