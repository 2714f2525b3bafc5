"""Repeated values of lists that may be as long as a request's body."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


def repeated(values: Iterable[Hashable]) -> frozenset[int]:
    """Return the places of values that stand earlier in the list, in linear time."""
    seen: set[Hashable] = set()
    places: list[int] = []
    for place, value in enumerate(values):
        if value in seen:
            places.append(place)
        seen.add(value)
    return frozenset(places)
