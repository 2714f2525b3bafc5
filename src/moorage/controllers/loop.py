"""Loop: what all controllers have in common — a work queue, the informers that fill it, workers.

A controller gives it two functions: which keys a change queues, and what is done about one key.
The queue's name is in the log and in `workqueue_*` metrics. A failed key is retried by the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from moorage.api.clock import Clock
from moorage.controllers.informers import wait_synced
from moorage.wire.client.informer import Informer, latest, object_key
from moorage.wire.client.queue import Reconcile, WorkQueue

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class After(Generic[K]):
    """A key that is queued after a delay; an earlier time that is already set is kept."""

    key: K
    seconds: float


Queued: TypeAlias = K | After[K]
Keys: TypeAlias = Callable[[Any, Any], Iterable[Queued[K]]]
"""Returns the keys that a change queues, given the object before and after it, None if absent."""
Watch: TypeAlias = tuple[Informer[Any], Keys[K] | None]
"""An informer that the reconcile reads; without `Keys` it is only waited for."""


class Loop(Generic[K]):
    """Queues keys as informers change and reconciles them, each key by one worker at a time."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        watches: Iterable[Watch[K]],
        clock: Clock,
        *,
        owned: Iterable[Informer[Any]] = (),
        late: Iterable[Watch[K]] = (),
        first: Iterable[Queued[K]] = (),
        resync: tuple[float, Callable[[], Iterable[K]]] | None = None,
        workers: int = 1,
    ) -> None:
        """Keys are queued from now on, and reconciled once `run` has seen all `watches` synced.

        `owned`: informers that run inside `run`; the others are shared and run elsewhere.
        `late`: watches whose keys depend on the copies of the others, so their handlers are added
        once those are complete. `first`: keys that are queued then, whatever changed. `resync`:
        the seconds after which, again and again, the keys that it returns are queued.
        """
        self._reconcile = reconcile
        self._watches = tuple(watches)
        self._owned = tuple(owned)
        self._late = tuple(late)
        self._first = tuple(first)
        self._resync = resync
        self._workers = workers
        self._clock = clock
        self._queue: WorkQueue[K] = WorkQueue(name, clock=clock)
        self._follow(self._watches)

    def add(self, *keys: Queued[K]) -> None:
        """Queue keys for another reason than a change of a watched object."""
        for key in keys:
            self._put(key)

    async def run(self, *, workers: int | None = None) -> None:
        """Reconcile until cancelled, with as many workers as given here or to the constructor."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._owned:
                tasks.create_task(informer.run())
            await wait_synced(*(informer for informer, _ in (*self._watches, *self._late)))
            self._follow(self._late)
            self.add(*self._first)
            if self._resync is not None:
                tasks.create_task(self._repeat(*self._resync))
            await self._queue.run(self._reconcile, workers=workers or self._workers)

    def _put(self, key: Queued[K]) -> None:
        if isinstance(key, After):
            self._queue.add_after(key.key, key.seconds)
        else:
            self._queue.add(key)

    async def _repeat(self, pause_s: float, keys: Callable[[], Iterable[K]]) -> None:
        while True:
            await self._clock.sleep(pause_s)
            self.add(*keys())

    def _follow(self, watches: Iterable[Watch[K]]) -> None:
        for informer, keys in watches:
            if keys is not None:
                informer.add_handler(self._adding(keys))

    def _adding(self, keys: Keys[K]) -> Callable[[Any, Any], None]:
        def changed(before: Any, after: Any) -> None:
            # One by one: `keys` may be a generator that changes what it keeps between two keys.
            for key in keys(before, after):
                self._put(key)

        return changed


def key_if_present(before: Any, after: Any) -> Iterable[str]:
    """Return the key of an object that was added or changed."""
    del before
    return () if after is None else (object_key(after.metadata),)


def key_of_either(before: Any, after: Any) -> Iterable[str]:
    """Return the key of an object that was added, changed or deleted."""
    return (object_key(latest(before, after).metadata),)


def key_of_either_forgetting(forget: Callable[[str], None]) -> Keys[str]:
    """Return `key_of_either` that first forgets what is known of an object that another replaced.

    An object that was deleted, or deleted and created again between two events, is another one.
    """

    def keys(before: Any, after: Any) -> Iterable[str]:
        (key,) = key_of_either(before, after)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            forget(key)
        return (key,)

    return keys
