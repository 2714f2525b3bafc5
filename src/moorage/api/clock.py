"""Time as an argument: the clock seam and the API's two timestamp forms.

No other module reads the system clock, so tests can stop time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol


class Clock(Protocol):
    """Clock interface."""

    def now(self) -> datetime:
        """Return the wall clock time, in UTC."""

    def monotonic(self) -> float:
        """Return monotonic seconds, for durations and deadlines."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds of this clock."""


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def sleep_unless_set(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Sleep for `seconds`, or until the event is set."""
    await sleep_unless_done(clock, seconds, event.wait())


async def sleep_unless_done(
    clock: Clock, seconds: float, work: Coroutine[Any, Any, object]
) -> None:
    """Sleep for `seconds`, or until the work is done; it is cancelled otherwise."""
    waiter = asyncio.ensure_future(work)
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((waiter, sleeper), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        sleeper.cancel()


def format_time(moment: datetime) -> str:
    """Format a `metav1.Time`: UTC, whole seconds (`2026-01-01T00:00:00Z`)."""
    return f"{_in_utc(moment).isoformat(timespec='seconds')}Z"


def format_micro_time(moment: datetime) -> str:
    """Format a `metav1.MicroTime`: UTC, exactly six fraction digits."""
    return f"{_in_utc(moment).isoformat(timespec='microseconds')}Z"


def _in_utc(moment: datetime) -> datetime:
    """Return the moment in UTC without zone. `strftime` writes the year 1 with one digit."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.replace(tzinfo=None)


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time with or without fraction, to UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"time {text!r} is out of range") from error
