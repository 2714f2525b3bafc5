"""Watchers: the queue of each watch, within a budget in bytes (`queue_budget.py`).

A watcher has a queue of its own, or a place in one that it shares with all watches of the same
frames (`shared_queue.py`). A watcher whose queue exceeds its own budget is ended.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from moorage.apiserver.storage.shared_queue import Place, QueueBudget, QueuedFrame, SharedQueue

W = TypeVar("W")
W_contra = TypeVar("W_contra", contravariant=True)


class Event(Protocol):
    """An event as watchers see it."""

    @property
    def revision(self) -> int: ...


E = TypeVar("E", bound=Event)


class Outlet(Protocol[W_contra]):
    """Where the frames of a watch go while its task waits."""

    def is_ready(self) -> bool:
        """Return whether the client is connected and has read most of its data."""

    def send(self, frames: Sequence[W_contra]) -> None:
        """Send frames without waiting for the client. Raises nothing."""


class WatcherOverflowError(Exception):
    """The reader of a watch fell too far behind; its stream ends and the client watches again."""


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
        self._queued: deque[QueuedFrame] = deque()
        self._sending: list[QueuedFrame] = []
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._due_s = 0.0
        self._own_bytes = 0
        self._shared: Place[W] | None = None
        self._outlet: Outlet[W] | None = None
        self._most_bytes = 0
        self.is_overflowed = False
        self.is_finished = False
        self.on_overflow: Callable[[], None] | None = None

    @property
    def queued_bytes(self) -> int:
        """Return the bytes that are queued, or were returned by the last `next_batch`."""
        shared = self._shared
        return self._own_bytes if shared is None else self._own_bytes + shared.queued_bytes

    def share(self, queue: SharedQueue[E, W]) -> None:
        """Read later events from a shared queue, after the own one; `push` is not used again."""
        self._shared = queue.join(self)

    def send_by(self, outlet: Outlet[W], most_bytes: int) -> None:
        """Send what fits into a number of bytes by an outlet while `next_batch` waits.

        A task that is woken for each write costs more than the write. Deadlines, and clients that
        read slowly, are the task's as before.
        """
        self._outlet, self._most_bytes = outlet, most_bytes

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
        self._own_bytes += entry.size
        if self._own_bytes > budget.queue_bytes and len(self._queued) > 1:
            self.overflow()
        elif budget.used > budget.all_bytes:
            budget.enforce()
        self.wake()

    async def next_batch(
        self, timeout_s: float | None = None, limit_bytes: int | None = None
    ) -> list[W]:
        """Wait for the first frame and return the queue; empty on timeout or when finished.

        With `limit_bytes` returns only as much as fits, but at least one frame. Returned frames
        count as queued until the next call. No change up to the cache's revision is missing when
        the result is empty: no other task runs between the check of the queue and the return.
        Raises WatcherOverflowError when events were dropped.
        """
        if self._sending:
            self._release(self._sending)
            self._sending = []
        shared = self._shared
        if shared is not None:
            shared.release()
        if not (
            self._queued
            or (shared is not None and shared.has_more)
            or self.is_overflowed
            or self.is_finished
        ):
            await self._wait(timeout_s)
        if self.is_overflowed:
            raise WatcherOverflowError
        if not self._queued:
            return [] if shared is None else shared.take(limit_bytes)
        queued, batch, size = self._queued, self._sending, 0
        while queued and (limit_bytes is None or not batch or size + queued[0].size <= limit_bytes):
            entry = queued.popleft()
            size += entry.size
            batch.append(entry)
        frames = [entry.frame for entry in batch]
        if shared is not None and limit_bytes is None:
            frames += shared.take(None)
        return frames

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
            self.wake()
        elif self._due_s < math.inf:
            self._set_timer(loop)

    def wake(self) -> None:
        """Have `next_batch` look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def read(self) -> None:
        """Send what the shared queue has, or wake `next_batch`. Hot path: per watch and write."""
        waiter, shared, outlet = self._waiter, self._shared, self._outlet
        if waiter is None or waiter.done() or shared is None or not shared.has_more:
            return
        if (
            outlet is None
            or self._queued
            or shared.unread_bytes > self._most_bytes
            or not outlet.is_ready()
        ):
            waiter.set_result(None)
            return
        outlet.send(shared.take(None))
        if outlet.is_ready():
            shared.release()
        else:
            # The frames count until the client has read, for which the task waits.
            waiter.set_result(None)

    def overflow(self) -> None:
        """End the watch: drop the queue; its reader gets WatcherOverflowError."""
        if self.is_overflowed:
            return
        self.is_overflowed = True
        self._release(self._queued)
        self._queued.clear()
        self._leave()
        self._budget.remove(self)
        self.wake()
        if self.on_overflow is not None:
            self.on_overflow()

    def finish(self) -> None:
        """End the watch once its queue is read: what it watches is no longer served."""
        self.is_finished = True
        self.wake()

    def close(self) -> None:
        """Drop the queue; no event is pushed or read after this."""
        self._release(self._queued)
        self._release(self._sending)
        self._queued.clear()
        self._sending = []
        self._leave()
        self._budget.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        if self._shared is not None:
            self._shared.leave()
            self._shared = None

    def _release(self, frames: deque[QueuedFrame] | list[QueuedFrame]) -> None:
        for entry in frames:
            self._own_bytes -= entry.size
            self._budget.release(entry)
