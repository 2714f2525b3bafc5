"""Isolation levels: how much of the host's kernel a pod's programs can reach, in order.

A level belongs to a class, by its label, or by what probes of its handler found. Source: KEP-585,
"Isolation" in its discussion of future classes; the order is that of Kubernetes' documents on
sandboxed pods.
"""

from __future__ import annotations

import enum


class UnknownIsolationError(ValueError):
    """A text that names no isolation level."""

    def __init__(self, text: str) -> None:
        super().__init__(f"unknown isolation level {text!r}: it must be one of {', '.join(LEVELS)}")


class Isolation(enum.IntEnum):
    """Levels from weak to strong; compare them with `<` and `>=`."""

    SHARED_KERNEL = 1
    USER_SPACE_KERNEL = 2
    VIRTUAL_MACHINE = 3
    CONFIDENTIAL_VIRTUAL_MACHINE = 4

    @property
    def label(self) -> str:
        """Return the level as labels, fields and messages spell it."""
        return _LABELS[self]


_LABELS = {level: level.name.lower().replace("_", "-") for level in Isolation}

LEVELS: dict[str, Isolation] = {level.label: level for level in Isolation}
"""Spelling → level, from weak to strong."""


def parse_isolation(text: str) -> Isolation:
    """Return the level of a spelling. Raises UnknownIsolationError."""
    try:
        return LEVELS[text]
    except KeyError:
        raise UnknownIsolationError(text) from None
