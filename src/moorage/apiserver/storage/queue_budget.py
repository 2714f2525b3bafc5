"""Queue budget: bytes that the queues of all watches may hold together, each frame counted once.

A frame that several queues hold is one object. When all queues together exceed their budget, the
longest are ended until the rest fits. The client of an ended watch lists again, as with
kube-apiserver's cacher (`forgetWatcher`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sized
from typing import Any, Protocol

QUEUE_BYTES = 8 * 1024 * 1024
ALL_QUEUES_BYTES = 128 * 1024 * 1024
# Memory of a queue entry besides its frame; bounds queues of tiny frames too.
_ENTRY_BYTES = 128
# The frames of one event: JSON and protobuf, whole and metadata alone, of more than one version.
_FORMS = 8


class Queue(Protocol):
    """A queue within the budget."""

    @property
    def queued_bytes(self) -> int: ...

    def overflow(self) -> None:
        """Drop the queue, and end the watch whose queue it is."""


class QueuedFrame:
    """A queued frame: its size and the number of queues that hold it."""

    __slots__ = ("frame", "holders", "size")

    def __init__(self, frame: Any, size: int) -> None:
        self.frame = frame
        self.size = size
        self.holders = 0


class QueueBudget:
    """Byte budget of all queues of one cache."""

    def __init__(self, queue_bytes: int = QUEUE_BYTES, all_bytes: int = ALL_QUEUES_BYTES) -> None:
        self.queue_bytes = queue_bytes
        self.all_bytes = all_bytes
        self.used = 0
        self._recent: deque[QueuedFrame] = deque(maxlen=_FORMS)
        # In order of arrival, so that ties are broken deterministically.
        self._watchers: dict[Queue, None] = {}

    def add(self, watcher: Queue) -> None:
        self._watchers[watcher] = None

    def remove(self, watcher: Queue) -> None:
        self._watchers.pop(watcher, None)

    def hold(self, frame: Any) -> QueuedFrame:
        """Count a frame for one more queue. The next watchers of an event queue the same frame."""
        recent = self._recent
        if recent and recent[0].frame is frame:
            recent[0].holders += 1
            return recent[0]
        for entry in recent:
            if entry.frame is frame:
                break
        else:
            size = len(frame) if isinstance(frame, Sized) else sys.getsizeof(frame)
            entry = QueuedFrame(frame, size + _ENTRY_BYTES)
            recent.appendleft(entry)
            self.used += entry.size
        entry.holders += 1
        return entry

    def release(self, entry: QueuedFrame) -> None:
        entry.holders -= 1
        if not entry.holders:
            self.used -= entry.size
            if entry in self._recent:
                self._recent.remove(entry)

    def enforce(self) -> None:
        """End the watchers with the longest queues until the total is within the budget.

        Of those with equal queues the newest ends first.
        """
        if self.used <= self.all_bytes:
            return
        newest_first = reversed(self._watchers)
        for watcher in sorted(newest_first, key=lambda watcher: watcher.queued_bytes, reverse=True):
            watcher.overflow()
            if self.used <= self.all_bytes:
                return
