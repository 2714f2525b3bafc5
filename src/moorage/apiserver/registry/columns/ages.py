"""Ages in short form, for AGE columns.

Source: apimachinery `duration.HumanDuration`; clients and their users sort and grep by this form.
"""

from __future__ import annotations

from moorage.api.clock import parse_time

UNKNOWN = "<unknown>"
INVALID = "<invalid>"

_SECONDS = {
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 24 * 3600,
    "y": 365 * 24 * 3600,
}
# Below each limit in seconds: the unit that is counted, and the one its remainder is printed in.
_FORMS = (
    (2 * _SECONDS["m"], "s", ""),
    (10 * _SECONDS["m"], "m", "s"),
    (3 * _SECONDS["h"], "m", ""),
    (8 * _SECONDS["h"], "h", "m"),
    (48 * _SECONDS["h"], "h", ""),
    (8 * _SECONDS["d"], "d", "h"),
    (2 * _SECONDS["y"], "d", ""),
    (8 * _SECONDS["y"], "y", "d"),
    (float("inf"), "y", ""),
)
# Clocks of two machines may differ by that much without the age being wrong.
_TOLERATED_S = -1


def duration_text(seconds: float) -> str:
    """Format a duration as `45s`, `3m12s`, `26h`, `5d3h` or `2y40d`.

    Returns `<invalid>` for more than a second below zero.
    """
    whole = int(seconds)
    if whole < _TOLERATED_S:
        return INVALID
    whole = max(whole, 0)
    unit, minor = next((unit, minor) for limit, unit, minor in _FORMS if whole < limit)
    count, remainder = divmod(whole, _SECONDS[unit])
    rest = remainder // _SECONDS[minor] if minor else 0
    return f"{count}{unit}{rest}{minor}" if rest else f"{count}{unit}"


def age(timestamp: str | None, now: float) -> str:
    """Format the time from an RFC 3339 timestamp to `now` (seconds since 1970).

    Returns `<unknown>` without a timestamp.
    """
    if not timestamp:
        return UNKNOWN
    return duration_text(now - parse_time(timestamp).timestamp())
