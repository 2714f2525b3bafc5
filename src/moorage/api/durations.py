"""Durations as Go prints them, in messages and fields that are fixed by Kubernetes."""

from __future__ import annotations


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
