"""Meter of an evaluation: counts what it costs, and cuts it off at the limit.

The unit is that of cost estimates: about one step. Source: apiserver `apis/cel/config.go` of
Kubernetes 1.36 (`PerCallLimit`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CALL_LIMIT = 1_000_000
"""The most that one evaluation of an expression may cost."""

ROOM_CHARACTERS = 10 * CALL_LIMIT
"""The most characters that calls of one evaluation may make: to read them costs the limit."""

EXCEEDED = "operation cancelled: actual cost limit exceeded"


class Meter:
    """What an evaluation has cost so far."""

    __slots__ = ("cost", "made_characters")

    def __init__(self) -> None:
        self.cost = 0
        self.made_characters = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether the evaluation has no value, whatever the expression makes of the error."""
        return self.cost > CALL_LIMIT

    def charge(self, cost: int) -> None:
        """Add to the cost. Raises ValueError above the limit."""
        self.cost += cost
        if self.cost > CALL_LIMIT:
            raise ValueError(EXCEEDED)

    def make_room(self, characters: int) -> None:
        """Note what is about to be made. Raises ValueError, for the rest too, above the most."""
        self.made_characters += characters
        if self.made_characters > ROOM_CHARACTERS:
            self.charge(CALL_LIMIT + 1)


_meter: ContextVar[Meter] = ContextVar("meter")


@contextmanager
def metering() -> Iterator[Meter]:
    """Count the cost of an evaluation while the context is open."""
    meter = Meter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def charge(cost: int) -> None:
    """Add to the cost of the evaluation that runs. Raises ValueError above the limit."""
    _meter.get().charge(cost)


def make_room(characters: int) -> None:
    """Note what the evaluation is about to make. Raises ValueError above the most."""
    _meter.get().make_room(characters)
