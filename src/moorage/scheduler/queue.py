"""Scheduling queue: pending pods, in the order they are tried.

Three places: *active* pods are next, by priority, then by how long they have waited; pods in
*backoff* failed recently; *parked* (unschedulable) pods wait for an event that may help. A pod in
backoff is taken early when no pod is active, unless its attempt ended in an error. Source:
kube-scheduler's scheduling queue.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from moorage.api.clock import Clock, sleep_unless_set
from moorage.api.pods import Pod
from moorage.scheduler.query import PodQuery
from moorage.wire.client.informer import object_key

_Group = tuple[PodQuery, frozenset[str]]

Hint = Callable[[PodQuery, frozenset[str]], bool]
"""Returns whether an event may help pods with this query that these filters rejected."""


class Place(Enum):
    """The part of the queue that holds a pod."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    PARKED = "parked"
    TAKEN = "taken"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Waiting:
    """A pending pod.

    `group` is the query and the rejecting filters while parked; `reported` is the reason and
    message last written to its condition.
    """

    key: str
    pod: Pod
    since: float
    attempted_at: float
    attempts: int = 0
    place: Place = Place.GONE
    ticket: int = 0
    group: _Group | None = None
    reported: tuple[str, str] = ("", "")

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


class SchedulingQueue:
    """The pending pods. Times are the clock's monotonic seconds; `run` releases pods when due."""

    def __init__(
        self,
        clock: Clock,
        *,
        first_backoff_s: float = 1.0,
        longest_backoff_s: float = 10.0,
        longest_wait_s: float = 300.0,
    ) -> None:
        self._clock = clock
        self._first_backoff_s = first_backoff_s
        self._longest_backoff_s = longest_backoff_s
        self._longest_wait_s = longest_wait_s
        self._entries: dict[str, Waiting] = {}
        self._parked: dict[_Group, dict[str, Waiting]] = {}
        self._active: list[tuple[int, float, int, Waiting]] = []
        self._backoff: list[tuple[float, int, Waiting]] = []
        self._timers: list[tuple[float, int, Waiting]] = []
        self._ticket = 0
        self._has_work = asyncio.Event()
        self._has_timer = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def timers(self) -> int:
        """Return how many timers are set, those that no longer count included."""
        return len(self._timers)

    def counts(self) -> dict[Place, int]:
        """Return the number of pods in each place."""
        counts = dict.fromkeys(Place, 0)
        for entry in self._entries.values():
            counts[entry.place] += 1
        return counts

    def get(self, key: str) -> Waiting | None:
        return self._entries.get(key)

    def add(self, pod: Pod) -> Waiting:
        """Add a pod as active, for its first attempt. Returns its entry."""
        key = object_key(pod.metadata)
        now = self._clock.monotonic()
        entry = self._entries[key] = Waiting(key, pod, since=now, attempted_at=now)
        self._activate(entry)
        return entry

    def remove(self, key: str) -> None:
        """Remove a pod: bound, deleted or no longer ours. No effect if it is unknown."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._move(entry, Place.GONE)

    def take(self) -> Waiting | None:
        """Return the next pod to try; None without one.

        Its entry stays in the queue as TAKEN until it is removed, parked or retried.
        """
        entry = self._pop_active() or self._pop_backoff()
        if entry is None:
            self._has_work.clear()
            return None
        self._move(entry, Place.TAKEN)
        entry.attempts += 1
        entry.attempted_at = self._clock.monotonic()
        return entry

    async def wait(self) -> None:
        """Block until `take` may return a pod."""
        await self._has_work.wait()

    def park(self, entry: Waiting, rejected_by: frozenset[str], query: PodQuery) -> None:
        """Park a pod until an event may make it schedulable, or the longest wait has passed."""
        if self._entries.get(entry.key) is not entry:
            return
        self._move(entry, Place.PARKED)
        entry.group = query, rejected_by
        self._parked.setdefault(entry.group, {})[entry.key] = entry
        self._set_timer(entry, self._clock.monotonic() + self._longest_wait_s)

    def retry(self, entry: Waiting) -> None:
        """Retry a pod after its backoff, because the attempt ended in an error."""
        if self._entries.get(entry.key) is entry:
            self._move(entry, Place.BACKOFF)
            self._set_timer(entry, entry.attempted_at + self._pause_s(entry))

    def wake(self, entry: Waiting) -> None:
        """Move a parked pod to active, or to backoff if its backoff time has not passed."""
        if entry.place is not Place.PARKED:
            return
        due = entry.attempted_at + self._pause_s(entry)
        if due <= self._clock.monotonic():
            self._activate(entry)
            return
        self._move(entry, Place.BACKOFF)
        heapq.heappush(self._backoff, (due, entry.ticket, entry))
        self._set_timer(entry, due)
        self._has_work.set()

    def wake_if(self, may_help: Hint) -> None:
        """Wake the parked pods that an event may make schedulable.

        The hint is called once for all pods with the same query and rejecting filters.
        """
        helped = [group for group in self._parked if may_help(*group)]
        for group in helped:
            for entry in tuple(self._parked[group].values()):
                self.wake(entry)

    def promote(self, entry: Waiting) -> None:
        """Move a parked pod or one in backoff to active at once, since the pod itself changed."""
        if entry.place in (Place.PARKED, Place.BACKOFF):
            self._activate(entry)

    async def run(self) -> None:
        """Release pods whose backoff or longest wait has passed, until cancelled."""
        while True:
            self._has_timer.clear()
            pause_s = self.release_due()
            if pause_s is None:
                await self._has_timer.wait()
            else:
                await sleep_unless_set(self._clock, pause_s, self._has_timer)

    def _pause_s(self, entry: Waiting) -> float:
        doublings = min(max(entry.attempts - 1, 0), 30)
        return min(self._longest_backoff_s, self._first_backoff_s * 2.0**doublings)

    def _activate(self, entry: Waiting) -> None:
        self._move(entry, Place.ACTIVE)
        heapq.heappush(self._active, (-entry.priority, entry.since, entry.ticket, entry))
        self._has_work.set()

    def _move(self, entry: Waiting, place: Place) -> None:
        """Set the pod's place and a new ticket, which invalidates its older heap entries."""
        if entry.group is not None:
            alike = self._parked[entry.group]
            del alike[entry.key]
            if not alike:
                del self._parked[entry.group]
            entry.group = None
        self._ticket += 1
        entry.place, entry.ticket = place, self._ticket

    def _pop_active(self) -> Waiting | None:
        while self._active:
            *_, ticket, entry = heapq.heappop(self._active)
            if entry.ticket == ticket:
                return entry
        return None

    def _pop_backoff(self) -> Waiting | None:
        while self._backoff:
            _, ticket, entry = heapq.heappop(self._backoff)
            if entry.ticket == ticket:
                return entry
        return None

    def _set_timer(self, entry: Waiting, due: float) -> None:
        heapq.heappush(self._timers, (due, entry.ticket, entry))
        if len(self._timers) > 2 * len(self._entries) + 64:
            self._timers = list(self._current_timers())
            heapq.heapify(self._timers)
        self._has_timer.set()

    def _current_timers(self) -> Iterator[tuple[float, int, Waiting]]:
        return (timer for timer in self._timers if timer[2].ticket == timer[1])

    def release_due(self) -> float | None:
        """Activate every pod that is due. Returns the seconds until the next; None without one."""
        now = self._clock.monotonic()
        while self._timers:
            due, ticket, entry = self._timers[0]
            if entry.ticket == ticket and due > now:
                return due - now
            heapq.heappop(self._timers)
            if entry.ticket == ticket:
                self._activate(entry)
        return None
