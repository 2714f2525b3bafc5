"""Counts that may be given as percentages. Source: apimachinery `intstr`."""

from __future__ import annotations


def scaled(value: int | str | None, total: int, *, rounds_up: bool) -> int:
    """Resolve a count, or a percentage of `total`. Raises ValueError for any other text."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"invalid value for IntOrString: {value!r} is not a percentage")
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if rounds_up else percent * total // 100
