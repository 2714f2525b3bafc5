"""Which labels a filter of the CRI asks for: equal ones, all of them."""

from __future__ import annotations

from collections.abc import Mapping


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether every wanted label is there with its value."""
    return all(labels.get(name) == value for name, value in wanted.items())
