"""Shared queues: watches of the same frames read one queue, each from a place of its own.

    event ─▶ push ─▶ [frame][frame][frame] ─▶ flush ─▶ Reader.read ─▶ Place.take
                       ▲ held   ▲ next

An event costs the same for one watch as for a thousand. Sending is what costs then, so readers read
together, at once after a quiet time, and else after a pause that grows with what the last reading
cost: many events go out in one write, and other requests keep two thirds of the time.
Hot path: `push`, per change, and `take`, per watch and write (bench/watchers.py).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Generic, Protocol, TypeVar

# Queue budget: bytes that the queues of all watches may hold together, each frame counted once.
#
# A frame that several queues hold is one object. When all queues together exceed their budget, the
# longest are ended until the rest fits. The client of an ended watch lists again, as with
# kube-apiserver's cacher (`forgetWatcher`).

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


_PAUSE_RATIO = 2.0
_LONGEST_PAUSE_S = 0.025

E_contra = TypeVar("E_contra", contravariant=True)
W = TypeVar("W")


class Reader(Queue, Protocol):
    """A watch that reads a shared queue."""

    def read(self) -> None:
        """Read what was queued: at once, or soon by the watch's task."""


class SharedQueue(Generic[E_contra, W]):
    """The frames that all readers of one kind get. `select` maps an event to its frame, or None."""

    def __init__(
        self,
        select: Callable[[E_contra], W | None],
        budget: QueueBudget,
        monotonic: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """`call_later` is the running loop's by default."""
        self._monotonic = monotonic
        self._call_later = call_later
        self._select = select
        self._budget = budget
        self._frames: list[QueuedFrame] = []
        self._first = 0
        """Number of the first frame that is held."""
        self._held_bytes = 0
        self._places: dict[Place[W], None] = {}
        self._holders: dict[int, int] = {}
        """Number of a frame → the places that hold it and the later ones, but none before."""
        self._taken: tuple[tuple[int, int, int | None], list[W], int] | None = None
        self._is_flush_due = False
        self._next_flush_s = 0.0
        self.end = 0
        """Number of the next frame."""
        self.bytes = 0
        """Bytes of all frames so far."""

    def join(self, reader: Reader) -> Place[W]:
        """Return a place for a reader, who gets what is pushed from now on."""
        place = Place(self, reader)
        self._places[place] = None
        self._holders[place.held] = self._holders.get(place.held, 0) + 1
        return place

    def leave(self, place: Place[W]) -> None:
        if self._places.pop(place, self) is None:
            self._give_up(place.held)

    def move(self, held: int, to: int) -> None:
        """Have a place that holds the frames from one number on hold those from a later one."""
        self._holders[to] = self._holders.get(to, 0) + 1
        self._give_up(held)

    def push(self, event: E_contra) -> None:
        """Queue the frame of an event. Readers with too much to read are ended."""
        if not self._places or (frame := self._select(event)) is None:
            return
        budget = self._budget
        entry = budget.hold(frame)
        self._frames.append(entry)
        self.end += 1
        self.bytes += entry.size
        self._held_bytes += entry.size
        if self._held_bytes > budget.queue_bytes:
            self._end_slow()
        if budget.used > budget.all_bytes:
            budget.enforce()
        if not self._is_flush_due:
            self._plan_flush()

    def take(self, first: int, limit_bytes: int | None) -> tuple[list[W], int]:
        """Return frames from a number on, at least one, else as many as fit, and their bytes.

        The list is shared by all who take the same, and must not be changed.
        """
        wanted = (first, self.end, limit_bytes)
        if self._taken is not None and self._taken[0] == wanted:
            return self._taken[1], self._taken[2]
        taken: list[W] = []
        size = 0
        for entry in self._frames[first - self._first :]:
            if limit_bytes is not None and taken and size + entry.size > limit_bytes:
                break
            taken.append(entry.frame)
            size += entry.size
        self._taken = (wanted, taken, size)
        return taken, size

    def _end_slow(self) -> None:
        """End the readers whose part of the queue is longer than one may be, and one frame."""
        for place in list(self._places):
            if place.queued_bytes > self._budget.queue_bytes and place.next < self.end - 1:
                place.reader.overflow()

    def _give_up(self, held: int) -> None:
        """Count a place less; the last one of the first frame gives back what no other holds.

        Mostly many places are at few numbers: thousands that leave together cost one look each.
        """
        holders = self._holders
        holders[held] -= 1
        if holders[held]:
            return
        del holders[held]
        if held == self._first:
            self._drop_read()

    def _drop_read(self) -> None:
        """Give back the frames that every reader has sent."""
        held = min(self._holders, default=self.end)
        count = held - self._first
        for entry in self._frames[:count]:
            self._held_bytes -= entry.size
            self._budget.release(entry)
        del self._frames[:count]
        self._first = held
        self._taken = None

    def _plan_flush(self) -> None:
        self._is_flush_due = True
        pause_s = self._next_flush_s - self._monotonic()
        loop = asyncio.get_running_loop()
        if pause_s > 0:
            (self._call_later or loop.call_later)(pause_s, self._flush)
        else:
            # The changes of one commit are pushed first.
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        began_s = self._monotonic()
        for place in self._places:
            place.reader.read()
        # Called after the tasks of readers that were woken, which have had their turn by then.
        asyncio.get_running_loop().call_soon(self._flushed, began_s)

    def _flushed(self, began_s: float) -> None:
        now_s = self._monotonic()
        pause_s = min(_PAUSE_RATIO * (now_s - began_s), _LONGEST_PAUSE_S)
        self._next_flush_s = now_s + pause_s


class Place(Generic[W]):
    """Place of a reader in a shared queue. What it took last counts as queued until `release`."""

    __slots__ = ("_held_bytes", "_next_bytes", "_queue", "held", "next", "reader")

    def __init__(self, queue: SharedQueue[Any, W], reader: Reader) -> None:
        self._queue = queue
        self.reader = reader
        self.held = self.next = queue.end
        self._held_bytes = self._next_bytes = queue.bytes

    @property
    def has_more(self) -> bool:
        return self.next < self._queue.end

    @property
    def queued_bytes(self) -> int:
        return self._queue.bytes - self._held_bytes

    @property
    def unread_bytes(self) -> int:
        """Return the bytes that `take` would return now."""
        return self._queue.bytes - self._next_bytes

    def take(self, limit_bytes: int | None) -> list[W]:
        """Return the next frames, none if there are none; the list must not be changed."""
        if self.next == self._queue.end:
            return []
        frames, size = self._queue.take(self.next, limit_bytes)
        self.next += len(frames)
        self._next_bytes += size
        return frames

    def release(self) -> None:
        """Give back what was taken."""
        held = self.held
        if held == self.next:
            return
        self.held, self._held_bytes = self.next, self._next_bytes
        self._queue.move(held, self.next)

    def leave(self) -> None:
        self._queue.leave(self)
