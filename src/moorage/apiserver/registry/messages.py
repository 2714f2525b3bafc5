"""Protobuf messages of stored objects, kept for the next reader within a budget.

An object is encoded when it is first read in protobuf, not when it is written: many never are. Its
message is kept by key and replaced with the object, so that lists and watches that follow copy
bytes. Beyond the budget the oldest go. Hot path: one lookup per object (bench/api.py).
"""

from __future__ import annotations

from typing import Final

MESSAGES_BYTES: Final = 24 * 1024 * 1024
# Memory of an entry besides its message: key, tuple, number, bytes header.
_ENTRY_BYTES = 300


class Messages:
    """The messages of one server's objects."""

    def __init__(self, budget_bytes: int = MESSAGES_BYTES) -> None:
        self._budget = budget_bytes
        self._kept: dict[str, tuple[int, bytes]] = {}
        self.held_bytes = 0

    def get(self, key: str, revision: int) -> bytes | None:
        """Return the message of an object at a revision, if it is kept."""
        entry = self._kept.get(key)
        return entry[1] if entry is not None and entry[0] == revision else None

    def keep(self, key: str, revision: int, message: bytes) -> None:
        """Keep a message in the place of the object's earlier one."""
        self._drop(key)
        self._kept[key] = (revision, message)
        self.held_bytes += len(message) + _ENTRY_BYTES
        while self.held_bytes > self._budget:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: str) -> None:
        entry = self._kept.pop(key, None)
        if entry is not None:
            self.held_bytes -= len(entry[1]) + _ENTRY_BYTES
