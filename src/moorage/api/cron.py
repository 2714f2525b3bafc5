"""Cron schedules: parsing, and the times at which one is due.

Five fields (minute, hour, day of month, month, day of week), a descriptor (`@daily`) or an interval
(`@every 90m`). A schedule is due in each minute whose local time matches it: a time that the change
to summer time skips is left out, one that comes twice is due twice. Source: API documentation of
`CronJob.spec.schedule`; robfig/cron v3, which upstream parses with, for the error texts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import msgspec

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_ZONE = re.compile(r"(?:CRON_)?TZ=")
_STARS = ("*", "?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INT = 2**63
_YEARS = 5
"""Years after which a schedule that was never due is taken for one that never will be."""

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.]*)")
_LONGEST_S = _MAX_INT / 1e9


class ScheduleError(ValueError):
    """The text is no cron schedule."""


class UnknownTimeZoneError(ValueError):
    """No time zone has that name on this host."""


class Calendar(msgspec.Struct, frozen=True):
    """A schedule of matching minutes in a time zone. Weekdays count from Sunday, 0.

    `needs_both`: whether day of month and day of week must both match, as they must unless both are
    restricted; else one is enough.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    needs_both: bool
    zone: tzinfo

    def next(self, after: datetime) -> datetime | None:
        """Return the first due time after a time, in UTC; None without one within five years."""
        if not (self.minutes and self.hours and self.months):
            # A field of commas alone names nothing; the walk below would take seconds to see it.
            return None
        moment = after.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        last_year = moment.year + _YEARS
        while True:
            local = moment.astimezone(self.zone)
            if local.year > last_year:
                return None
            if local.month not in self.months:
                moment = self._midnight((local.replace(day=1) + 31 * _DAY).replace(day=1))
            elif not self._is_day(local):
                moment = self._midnight(local + _DAY)
            elif local.hour not in self.hours:
                moment += _HOUR - timedelta(minutes=local.minute)
            elif local.minute not in self.minutes:
                moment += _MINUTE
            else:
                return moment

    def latest(self, after: datetime, now: datetime) -> datetime | None:
        """Return the last due time after a time and not after `now`; None without one."""
        # Backwards in growing steps, since there may be any number of due times.
        span = _HOUR
        while True:
            start = max(after, now - span)
            due = self.next(start)
            if due is not None and due <= now:
                return _last(self, due, now)
            if start == after:
                return None
            span *= 2

    def _is_day(self, local: datetime) -> bool:
        has_day = local.day in self.days
        has_weekday = local.isoweekday() % 7 in self.weekdays
        return has_day and has_weekday if self.needs_both else has_day or has_weekday

    def _midnight(self, local: datetime) -> datetime:
        start = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        return start.astimezone(UTC)


class Interval(msgspec.Struct, frozen=True):
    """A schedule that is due again so many seconds after the last time."""

    seconds: int

    def next(self, after: datetime) -> datetime | None:
        """Return the next due time, in whole seconds."""
        try:
            return after.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=self.seconds)
        except OverflowError:
            return None

    def latest(self, after: datetime, now: datetime) -> datetime | None:
        """Return the last due time after a time and not after `now`; None without one."""
        first = self.next(after)
        if first is None or first > now:
            return None
        steps = int((now - first).total_seconds()) // self.seconds
        return first + timedelta(seconds=steps * self.seconds)


Schedule = Calendar | Interval


def _last(schedule: Calendar, due: datetime, now: datetime) -> datetime:
    while (later := schedule.next(due)) is not None and later <= now:
        due = later
    return due


def count_due(schedule: Schedule, after: datetime, now: datetime, limit: int) -> int:
    """Return how many times were due after a time and not after `now`; at most `limit`."""
    due, count = schedule.next(after), 0
    while due is not None and due <= now and count < limit:
        due, count = schedule.next(due), count + 1
    return count


def load_zone(name: str) -> tzinfo:
    """Return a time zone of this host by its IANA name; UTC for `""`.

    Raises UnknownTimeZoneError.
    """
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise UnknownTimeZoneError(f"unknown time zone {name}") from error


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """Parse a schedule. A zone that the text names counts before `zone`. Raises ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    if prefix := _ZONE.match(text):
        text, zone = _split_zone(text, prefix.end())
    if text.startswith(_EVERY):
        return Interval(_parse_interval(text))
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != 5:
        found = f"{len(fields)}: [{' '.join(fields)}]"
        raise ScheduleError(f"expected exactly 5 fields, found {found}")
    minutes, _ = _parse_field(fields[0], 0, 59)
    hours, _ = _parse_field(fields[1], 0, 23)
    days, any_day = _parse_field(fields[2], 1, 31)
    months, _ = _parse_field(fields[3], 1, 12, dict(zip(_MONTHS, range(1, 13), strict=True)))
    names = dict(zip(_WEEKDAYS, range(7), strict=True))
    weekdays, any_weekday = _parse_field(fields[4], 0, 6, names)
    return Calendar(minutes, hours, days, months, weekdays, any_day or any_weekday, zone)


def _split_zone(text: str, start: int) -> tuple[str, tzinfo]:
    """Return a schedule without the zone that it starts with, and that zone."""
    name, space, rest = text[start:].partition(" ")
    if not space:
        raise ScheduleError("invalid schedule format: it is a time zone without a schedule")
    try:
        return rest.strip(), load_zone(name)
    except UnknownTimeZoneError as error:
        raise ScheduleError(f"provided bad location {name}: {error}") from error


def _parse_field(
    field: str, lowest: int, highest: int, names: dict[str, int] | None = None
) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether a part of it is unrestricted."""
    values: set[int] = set()
    has_star = False
    for part in filter(None, field.split(",")):
        numbers, is_star = _parse_range(part, lowest, highest, names or {})
        values.update(numbers)
        has_star = has_star or is_star
    return frozenset(values), has_star


def _parse_range(text: str, lowest: int, highest: int, names: dict[str, int]) -> tuple[range, bool]:
    limits, *steps = text.split("/")
    low, *high = limits.split("-")
    is_star = low in _STARS
    if is_star:
        first, last = lowest, highest
    else:
        first = last = _parse_number(low, names)
        if len(high) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        if high:
            last = _parse_number(high[0], names)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _parse_number(steps[0], {}) if steps else 1
    if steps and not high:
        # `N/step` is `N-highest/step`.
        last = highest
    _check_range(text, first, last, step, lowest, highest)
    return range(first, last + 1, step), is_star and step == 1


def _check_range(text: str, first: int, last: int, step: int, lowest: int, highest: int) -> None:
    beginning = f"beginning of range ({first})"
    if first < lowest:
        raise ScheduleError(f"{beginning} below minimum ({lowest}): {text}")
    if last > highest:
        raise ScheduleError(f"end of range ({last}) above maximum ({highest}): {text}")
    if first > last:
        raise ScheduleError(f"{beginning} beyond end of range ({last}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _parse_number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    failure = f'failed to parse int from {text}: strconv.Atoi: parsing "{text}"'
    if not _INTEGER.fullmatch(text):
        raise ScheduleError(f"{failure}: invalid syntax")
    if len(text) > 20 or not -_MAX_INT <= int(text) < _MAX_INT:
        raise ScheduleError(f"{failure}: value out of range")
    if int(text) < 0:
        raise ScheduleError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)


def _parse_interval(text: str) -> int:
    """Return the whole seconds of `@every DURATION`, at least 1."""
    duration = text.removeprefix(_EVERY)
    failure = f"failed to parse duration {text}: time:"
    sign = duration[:1] in ("-", "+")
    parts = _DURATION_PART.findall(duration[1:] if sign else duration)
    if duration.lstrip("+-") == "0":
        return 1
    if not parts or "".join(map("".join, parts)) != (duration[1:] if sign else duration):
        raise ScheduleError(f'{failure} invalid duration "{duration}"')
    seconds = 0.0
    for number, unit in parts:
        if not unit:
            raise ScheduleError(f'{failure} missing unit in duration "{duration}"')
        if unit not in _UNITS_S:
            raise ScheduleError(f'{failure} unknown unit "{unit}" in duration "{duration}"')
        seconds += float(number) * _UNITS_S[unit]
    if seconds >= _LONGEST_S:
        raise ScheduleError(f'{failure} invalid duration "{duration}"')
    return 1 if duration.startswith("-") else max(1, int(seconds))
