"""Label selectors of CRI filters: equality, all of them."""

from __future__ import annotations

from collections.abc import Mapping


def has_labels(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Return whether every selected label is present with its value."""
    return all(labels.get(name) == value for name, value in selector.items())
