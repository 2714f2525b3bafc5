"""Shared values: equal values that many objects have, each kept once.

Thousands of nodes have the same labels of handlers and the same findings of probes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class SharedValues(Generic[T]):
    """A pool of values, counted by their users."""

    def __init__(self) -> None:
        self._kept: dict[T, tuple[T, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, value: T) -> T:
        """Return the value that equals this one, to be given back as often as it was taken."""
        shared, users = self._kept.get(value, (value, 0))
        self._kept[shared] = (shared, users + 1)
        return shared

    def give_back(self, value: T) -> None:
        """Forget a value that was taken; the last user to do so frees it."""
        shared, users = self._kept[value]
        if users > 1:
            self._kept[shared] = (shared, users - 1)
        else:
            del self._kept[shared]
