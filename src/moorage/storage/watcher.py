"""Watchers: the queue of each watch, within a budget in bytes.

A frame that several watchers queue is one object and is counted once. A watcher whose queue exceeds
its own budget is ended; when all queues together exceed theirs, the longest are ended until the
rest fits. The client of an ended watch lists again, as with kube-apiserver's cacher
(`forgetWatcher`). Hot path: `push`, per change and interested watcher (bench/hotpaths.py).
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Generic, Protocol, TypeVar

QUEUE_BYTES = 8 * 1024 * 1024
ALL_QUEUES_BYTES = 128 * 1024 * 1024
# Memory of a queue entry besides its frame; bounds queues of tiny frames too.
_ENTRY_BYTES = 128
# The frames of one event: JSON and protobuf, whole and metadata alone, of more than one version.
_FORMS = 8

W = TypeVar("W")


class Event(Protocol):
    """An event as watchers see it."""

    @property
    def revision(self) -> int: ...


E = TypeVar("E", bound=Event)


class WatcherOverflowError(Exception):
    """The reader of a watch fell too far behind; its stream ends and the client watches again."""


class _QueuedFrame:
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
        self._recent: deque[_QueuedFrame] = deque(maxlen=_FORMS)
        # In order of arrival, so that ties are broken deterministically.
        self._watchers: dict[Watcher[Any, Any], None] = {}

    def add(self, watcher: Watcher[Any, Any]) -> None:
        self._watchers[watcher] = None

    def remove(self, watcher: Watcher[Any, Any]) -> None:
        self._watchers.pop(watcher, None)

    def hold(self, frame: Any) -> _QueuedFrame:
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
            entry = _QueuedFrame(frame, size + _ENTRY_BYTES)
            recent.appendleft(entry)
            self.used += entry.size
        entry.holders += 1
        return entry

    def release(self, entry: _QueuedFrame) -> None:
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


class Watcher(Generic[E, W]):
    """Queue of one watch. `select` maps an event to the frame to queue, or None.

    `on_overflow` is called once, when the watcher is ended because its reader is too slow.
    """

    def __init__(
        self, select: Callable[[E], W | None], after: int, budget: QueueBudget | None = None
    ) -> None:
        self._select = select
        self._after = after
        self._budget = budget or QueueBudget()
        self._budget.add(self)
        self._queued: deque[_QueuedFrame] = deque()
        self._sending: list[_QueuedFrame] = []
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._due_s = 0.0
        self.is_overflowed = False
        self.is_finished = False
        self.queued_bytes = 0
        self.on_overflow: Callable[[], None] | None = None

    def push(self, event: E) -> None:
        """Queue an event, or end the watch when its queue is full."""
        if event.revision <= self._after or self.is_overflowed:
            return
        selected = self._select(event)
        if selected is None:
            return
        budget = self._budget
        entry = budget.hold(selected)
        self._queued.append(entry)
        self.queued_bytes += entry.size
        if self.queued_bytes > budget.queue_bytes and len(self._queued) > 1:
            self.overflow()
        elif budget.used > budget.all_bytes:
            budget.enforce()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def next_batch(
        self, timeout_s: float | None = None, limit_bytes: int | None = None
    ) -> list[W]:
        """Wait for the first frame and return the queue; empty on timeout or when finished.

        With `limit_bytes` returns only as much as fits, but at least one frame. Returned frames
        count as queued until the next call. No change up to the cache's revision is missing when
        the result is empty: no other task runs between the check of the queue and the return.
        Raises WatcherOverflowError when events were dropped.
        """
        self._release(self._sending)
        self._sending = []
        if not self._queued and not self.is_overflowed and not self.is_finished:
            await self._wait(timeout_s)
        if self.is_overflowed:
            raise WatcherOverflowError
        queued, batch, size = self._queued, self._sending, 0
        while queued and (limit_bytes is None or not batch or size + queued[0].size <= limit_bytes):
            entry = queued.popleft()
            size += entry.size
            batch.append(entry)
        return [entry.frame for entry in batch]

    async def _wait(self, timeout_s: float | None) -> None:
        """Wait until something happens, or for the timeout.

        One timer serves many waits: it is set again only when it fires, or to fire earlier. A
        timer for each wait would cost as much as the rest of an event's delivery.
        """
        loop = asyncio.get_running_loop()
        self._due_s = math.inf if timeout_s is None else loop.time() + timeout_s
        if self._due_s < math.inf and (self._timer is None or self._due_s < self._timer_s):
            self._set_timer(loop)
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = self._due_s
        self._timer = loop.call_at(self._timer_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._due_s:
            self._wake()
        elif self._due_s < math.inf:
            self._set_timer(loop)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def overflow(self) -> None:
        """End the watch: drop the queue; its reader gets WatcherOverflowError."""
        if self.is_overflowed:
            return
        self.is_overflowed = True
        self._release(self._queued)
        self._queued.clear()
        self._budget.remove(self)
        self._wake()
        if self.on_overflow is not None:
            self.on_overflow()

    def finish(self) -> None:
        """End the watch once its queue is read: what it watches is no longer served."""
        self.is_finished = True
        self._wake()

    def close(self) -> None:
        """Drop the queue; no event is pushed or read after this."""
        self._release(self._queued)
        self._release(self._sending)
        self._queued.clear()
        self._sending = []
        self._budget.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self, frames: deque[_QueuedFrame] | list[_QueuedFrame]) -> None:
        for entry in frames:
            self.queued_bytes -= entry.size
            self._budget.release(entry)
