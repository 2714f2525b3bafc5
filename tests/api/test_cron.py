"""Cron schedules: what is parsed and refused, and when they are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.cron import (
    Interval,
    ScheduleError,
    UnknownTimeZoneError,
    count_due,
    load_zone,
    parse_schedule,
)

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(schedule: str, after: str, count: int = 1, zone: str = "") -> list[str]:
    parsed, moment, times = parse_schedule(schedule, load_zone(zone)), at(after), []
    for _ in range(count):
        following = parsed.next(moment)
        if following is None:
            break
        moment = following
        times.append(moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00"))
    return times


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00", "2026-01-01 00:01"),
        ("* * * * *", "2026-01-01 00:00:59", "2026-01-01 00:01"),
        ("*/15 * * * *", "2026-01-01 00:46", "2026-01-01 01:00"),
        ("5/20 * * * *", "2026-01-01 00:25", "2026-01-01 00:45"),
        ("0 9-17/4 * * *", "2026-01-01 13:00", "2026-01-01 17:00"),
        ("30 4 1,15 * *", "2026-01-02 00:00", "2026-01-15 04:30"),
        ("0 0 31 * *", "2026-02-01 00:00", "2026-03-31 00:00"),
        ("0 0 29 2 *", "2026-03-01 00:00", "2028-02-29 00:00"),
        ("0 0 * * sun", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("0 0 * * MON-fri", "2026-01-02 12:00", "2026-01-05 00:00"),
        ("0 0 1 jan ?", "2026-01-01 00:00", "2027-01-01 00:00"),
        # Both days are restricted: one is enough.
        ("0 0 13 * 5", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("0 0 13 * 5", "2026-01-09 00:00", "2026-01-13 00:00"),
        # Steps are a restriction, unlike a star: the 1st, 17th, or a Friday.
        ("0 0 */16 * 5", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("0 0 */1 * 5", "2026-01-03 00:00", "2026-01-09 00:00"),
        ("@hourly", "2026-01-01 00:30", "2026-01-01 01:00"),
        ("@daily", "2026-01-01 00:30", "2026-01-02 00:00"),
        ("@midnight", "2026-12-31 00:30", "2027-01-01 00:00"),
        ("@weekly", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("@monthly", "2026-01-01 00:00", "2026-02-01 00:00"),
        ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("@annually", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("@every 90m", "2026-01-01 00:00:07", "2026-01-01 01:30:07"),
        ("@every 1h30m5.5s", "2026-01-01 00:00", "2026-01-01 01:30:05"),
        ("@every 1ms", "2026-01-01 00:00", "2026-01-01 00:00:01"),
        ("@every -5m", "2026-01-01 00:00", "2026-01-01 00:00:01"),
        ("@every 0", "2026-01-01 00:00", "2026-01-01 00:00:01"),
        ("TZ=Europe/Berlin 0 9 * * *", "2026-01-01 00:00", "2026-01-01 08:00"),
        ("CRON_TZ=Europe/Berlin @daily", "2026-01-01 00:00", "2026-01-01 23:00"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert due(schedule, after) == [expected]


def test_a_skipped_hour_is_left_out_and_a_doubled_one_is_due_twice() -> None:
    assert due("30 2 * * *", "2026-03-28 12:00", 2, "Europe/Berlin") == [
        "2026-03-30 00:30", "2026-03-31 00:30",
    ]  # fmt: skip
    assert due("30 2 * * *", "2026-10-24 12:00", 3, "Europe/Berlin") == [
        "2026-10-25 00:30", "2026-10-25 01:30", "2026-10-26 01:30",
    ]  # fmt: skip


def test_a_day_may_start_at_one() -> None:
    # In Santiago, midnight of 2026-09-06 does not exist.
    assert due("0 * 6 9 *", "2026-09-05 00:00", 2, "America/Santiago") == [
        "2026-09-06 04:00", "2026-09-06 05:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "schedule", ["0 0 31 2 *", "0 0 30 2 *", ", * * * *", "* , * * *", "* * * , *"]
)
def test_a_schedule_that_is_never_due(schedule: str) -> None:
    assert due(schedule, "2026-01-01 00:00") == []
    assert parse_schedule(schedule).latest(at("1970-01-01 00:00"), at("2026-01-01 00:00")) is None


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("", "empty spec string"),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * 32 * *", "end of range (32) above maximum (31): 32"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("9-5 * * * *", "beginning of range (9) beyond end of range (5): 9-5"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *",
         'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("-1 * * * *",
         'failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        ("99999999999999999999 * * * *",
         "failed to parse int from 99999999999999999999: strconv.Atoi: parsing "
         '"99999999999999999999": value out of range'),
        ("* * jan * *",
         'failed to parse int from jan: strconv.Atoi: parsing "jan": invalid syntax'),
        ("@never", "unrecognized descriptor: @never"),
        ("@every", "unrecognized descriptor: @every"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        ("@every 1d",
         'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        ("@every 9999999999h",
         'failed to parse duration @every 9999999999h: time: invalid duration "9999999999h"'),
        ("TZ=Mars/X * * * * *", "provided bad location Mars/X: unknown time zone Mars/X"),
        ("TZ=UTC", "invalid schedule format: it is a time zone without a schedule"),
    ],
)  # fmt: skip
def test_schedules_that_are_refused(schedule: str, says: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(schedule)
    assert str(caught.value) == says


@pytest.mark.parametrize(
    "name", ["Mars/Crater", "Europe", "../etc/passwd", "/etc/passwd", "x" * 999]
)
def test_unknown_zones(name: str) -> None:
    with pytest.raises(UnknownTimeZoneError, match="unknown time zone"):
        load_zone(name)


_FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "3,50", "10-20"]),
    st.sampled_from(["*", "2", "*/5", "1-3", "23"]),
    st.sampled_from(["*", "1", "13", "28-31"]),
    st.sampled_from(["*", "2", "3,10"]),
    st.sampled_from(["*", "0", "mon-wed"]),
)


@given(
    _FIELDS,
    st.integers(0, 2 * 365 * 24 * 3600),
    st.integers(1, 60 * 24 * 400),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Santiago"]),
)
def test_the_latest_time_is_the_last_before_the_next(
    fields: tuple[str, ...], seconds: int, minutes: int, zone: str
) -> None:
    schedule = parse_schedule(" ".join(fields), load_zone(zone))
    after = at("2025-01-01 00:00") + timedelta(seconds=seconds)
    now = after + timedelta(minutes=minutes)
    latest = schedule.latest(after, now)
    first = schedule.next(after)
    if latest is None:
        assert first is None or first > now
        return
    assert first is not None
    assert first <= latest <= now
    following = schedule.next(latest)
    assert following is None or following > now
    # One minute before it, it is the next one.
    assert schedule.next(latest - timedelta(minutes=1)) == latest


def test_intervals_go_on_from_the_first_time() -> None:
    schedule = Interval(7)
    start = at("2026-01-01 00:00")
    assert schedule.latest(start, start + timedelta(seconds=6)) is None
    assert schedule.latest(start, start + timedelta(seconds=7)) == start + timedelta(seconds=7)
    assert schedule.latest(start, start + timedelta(seconds=27)) == start + timedelta(seconds=21)
    assert Interval(2**60).next(start) is None


def test_due_times_are_counted_to_a_limit() -> None:
    schedule, start = parse_schedule("* * * * *"), at("2026-01-01 00:00")
    assert count_due(schedule, start, start, 9) == 0
    assert count_due(schedule, start, start + timedelta(minutes=5), 9) == 5
    assert count_due(schedule, start, start + timedelta(days=5000), 9) == 9
