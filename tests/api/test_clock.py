"""The API's timestamps, and sleeping until something happens."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from moorage.api.clock import (
    SystemClock,
    format_micro_time,
    format_time,
    parse_time,
    sleep_unless_set,
)
from tests.clocks import FakeClock, settle

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
_ELSEWHERE = _MOMENT.astimezone(timezone(timedelta(hours=2)))


@pytest.mark.parametrize("moment", [_MOMENT, _ELSEWHERE])
def test_both_forms_are_in_utc(moment: datetime) -> None:
    assert format_time(moment) == "2026-01-02T03:04:05Z"
    assert format_micro_time(moment) == "2026-01-02T03:04:05.678900Z"


@pytest.mark.parametrize(
    "text",
    ["2026-01-02T03:04:05.6789Z", "2026-01-02T05:04:05.678900+02:00", format_micro_time(_MOMENT)],
)
def test_a_time_is_read_in_utc(text: str) -> None:
    moment = parse_time(text)
    assert moment == _MOMENT
    assert moment.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "why"),
    [("2026-01-02T03:04:05", "has no zone"), ("", "Invalid isoformat"), ("soon", "Invalid"),
     ("0001-01-01T00:00:00+02:00", "out of range"), ("9999-12-31T23:59:59-02:00", "out of range")],
)  # fmt: skip
def test_invalid_time_or_time_without_zone_is_rejected(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_time(text)


def test_years_have_four_digits() -> None:
    early = datetime(1, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert format_time(early) == "0001-01-01T00:00:01Z"
    assert format_micro_time(early) == "0001-01-01T00:00:01.000000Z"
    assert parse_time(format_time(early)) == early


async def test_the_systems_clock() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now().timestamp() - time.time()) < 60
    assert abs(clock.monotonic() - time.monotonic()) < 60
    begin = clock.monotonic()
    await clock.sleep(0.002)
    assert clock.monotonic() - begin >= 0.001


@pytest.mark.parametrize("ends_by", ["event", "time", "cancellation"])
async def test_sleep_ends_by_time_or_event_and_leaves_nothing_behind(ends_by: str) -> None:
    clock, event = FakeClock(), asyncio.Event()
    before = asyncio.all_tasks()
    task = asyncio.create_task(sleep_unless_set(clock, 10, event))
    await settle()
    assert clock.next_s == 10
    clock.advance(9)
    await settle()
    assert not task.done()
    if ends_by == "event":
        event.set()
    elif ends_by == "time":
        clock.advance(1)
    else:
        task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.done()
    await settle()
    assert asyncio.all_tasks() == before
