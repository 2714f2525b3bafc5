"""Work queue of keys to reconcile: each key once, one worker per key, failures with backoff.

Bounded by the number of distinct keys. A key that is added while a worker processes it is processed
again afterwards, so no change is lost.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from moorage.api.clock import Clock, SystemClock, sleep_unless_set
from moorage.api.errors import ConflictError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.informer import Informer
from moorage.wire.client.rest import UnreachableError
from moorage.wire.metrics import series_of

# Waiting for objects: until a collection, as an informer sees it, meets a condition.

T = TypeVar("T", bound=Object)


async def wait_until(informer: Informer[T], condition: Callable[[Informer[T]], bool]) -> None:
    """Run a new informer until its copy meets the condition, which is asked after each change.

    It is asked first once the collection has been listed. Without a deadline of its own: use
    `asyncio.timeout`. The copy stays as it was last seen.
    """
    changed = asyncio.Event()
    informer.add_handler(lambda _before, _after: changed.set())
    following = asyncio.ensure_future(informer.run())
    try:
        await informer.wait_synced()
        while not condition(informer):
            changed.clear()
            await changed.wait()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]
"""Reconciles one key. Returns the seconds until it must run again for it, or None."""

log = Log(__name__)


class WorkQueue(Generic[K]):
    """A queue of keys and its workers, which run inside `run`. `name` is for the log.

    Failed keys are retried after a pause that doubles from `first_retry_s` to `longest_retry_s`.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        first_retry_s: float = 0.05,
        longest_retry_s: float = 60.0,
    ) -> None:
        self._name = name
        self._clock = clock or SystemClock()
        self._first_retry_s = first_retry_s
        self._longest_retry_s = longest_retry_s
        self._ready: dict[K, None] = {}
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._backoffs: dict[K, Backoff] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._sequence = 0
        self._series = series_of(name, self._clock)
        self._has_ready = asyncio.Event()
        self._has_timer = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Queue a key; a key that is queued already is not added twice."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = None
            self._has_ready.set()
            if self._series is not None:
                self._series.added(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key after a delay; an earlier time that is already set is kept."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, key))
        self._has_timer.set()

    def retry(self, key: K) -> float:
        """Queue a key after its next backoff pause. Returns the pause in seconds."""
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = Backoff(self._first_retry_s, self._longest_retry_s)
        pause_s = backoff.next_s()
        self.add_after(key, pause_s)
        if self._series is not None:
            self._series.retried()
        return pause_s

    async def run(self, reconcile: Reconcile[K], *, workers: int = 1) -> None:
        """Reconcile keys until cancelled.

        A key whose reconcile raises is retried with backoff; the failure is logged unless it is a
        ConflictError.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_timers())
            for _ in range(workers):
                tasks.create_task(self._work(reconcile))

    async def _work(self, reconcile: Reconcile[K]) -> None:
        while True:
            key = await self._next()
            try:
                again_s = await reconcile(key)
            except ConflictError:
                # Another client wrote first. The informer's copy is current by the retry.
                self.retry(key)
            except (StatusError, UnreachableError) as error:
                pause_s = self.retry(key)
                log.warning(
                    "reconcile failed", queue=self._name, key=key, error=error,
                    retry_s=round(pause_s, 2),
                )  # fmt: skip
            except Exception:
                pause_s = self.retry(key)
                log.exception(
                    "reconcile broke", queue=self._name, key=key, retry_s=round(pause_s, 2)
                )
            else:
                self._backoffs.pop(key, None)
                if again_s is not None:
                    self.add_after(key, again_s)
            finally:
                self._finish(key)

    async def _next(self) -> K:
        while not self._ready:
            self._has_ready.clear()
            await self._has_ready.wait()
        key = next(iter(self._ready))
        del self._ready[key]
        self._active.add(key)
        if self._series is not None:
            self._series.began(key)
        return key

    def _finish(self, key: K) -> None:
        self._active.discard(key)
        if self._series is not None:
            self._series.ended(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def _run_timers(self) -> None:
        while True:
            self._has_timer.clear()
            pause_s = self._release_due()
            if pause_s is None:
                await self._has_timer.wait()
            else:
                await sleep_unless_set(self._clock, pause_s, self._has_timer)

    def _release_due(self) -> float | None:
        """Queue every key that is due. Returns the seconds until the next, None without one."""
        now = self._clock.monotonic()
        while self._timers:
            due, _, key = self._timers[0]
            if due > now:
                return due - now
            heapq.heappop(self._timers)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        return None
