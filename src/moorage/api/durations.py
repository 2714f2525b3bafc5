"""Durations as Go prints them, in messages and fields that are fixed by Kubernetes."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
# Go's durations are 64 bits of nanoseconds.
_LONGEST_S = 2**63 / 1e9
_MOST_CHARACTERS = 256


def format_duration(seconds: float) -> str:
    """Format a duration as Go prints it: `10s`, `2m40s`, `1h0m0s`, `250ms`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    fraction = seconds - whole
    shown = f"{left + round(fraction, 9):g}s"
    if hours:
        return f"{hours}h{minutes}m{shown}"
    return f"{minutes}m{shown}" if minutes else shown


def parse_duration(text: str) -> timedelta:
    """Parse a duration that is not negative, as Go prints it. Raises ValueError."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"a duration has at most {_MOST_CHARACTERS} characters")
    parts = _PART.findall(text)
    if text != "0" and (not parts or "".join(map("".join, parts)) != text):
        raise ValueError(f"{text!r} is not a duration")
    seconds = sum(float(amount) * _SECONDS[unit] for amount, unit in parts)
    if seconds > _LONGEST_S:
        raise ValueError(f"the duration {text!r} is out of range")
    return timedelta(seconds=seconds)
