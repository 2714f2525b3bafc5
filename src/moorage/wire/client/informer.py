"""Informer: a local copy of a collection, kept current by list and watch.

Lists once, then watches. A watch that breaks is resumed from the last resourceVersion; when that
has expired (410), the informer lists again. After a list, handlers are called for each difference
from the copy, so missed events are not lost. Source: client-go `tools/cache` Reflector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from moorage.api.clock import Clock, SystemClock
from moorage.api.errors import ExpiredError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object, ObjectMeta
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import PAGE_SIZE, Client, UnreachableError, WatchEvent, meta_of

T = TypeVar("T", bound=Object)
V = TypeVar("V")
Handler = Callable[[T | None, T | None], None]
"""Called with (before, after): before is None when added, after when deleted. Must not block."""

_SHORT_WATCH_S = 1.0

log = Log(__name__)


def object_key(meta: ObjectMeta) -> str:
    """Return `namespace/name`, or `name` for a cluster-scoped object."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def latest(before: V | None, after: V | None) -> V:
    """Return the object of a change as it is, or as it was last if it is gone."""
    either = before if after is None else after
    assert either is not None, "a change has an object before or after it"
    return either


class Informer(Generic[T]):
    """Local copy of one collection, optionally of one namespace or matching a selector.

    `indexes` maps the name of an index to a function that returns an object's values in it. Run
    `run()` in a task group; read after `wait_synced()`. The copy is empty before the first list.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        keep: Callable[[T], T] | None = None,
        page_size: int = PAGE_SIZE,
        clock: Clock | None = None,
    ) -> None:
        """`keep` returns what is kept of an object once the handlers have seen it whole.

        It has at least `metadata` with `resource_version`, and what indexes and handlers read.
        """
        self._client = client
        self.resource = resource
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._keep = keep
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._objects: dict[str, T] = {}
        self._indexes = dict(indexes or {})
        self._indexed: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._indexes}
        self._handlers: list[Handler[T]] = []
        self._synced = asyncio.Event()
        self._resource_version = ""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def get(self, name: str, namespace: str | None = None) -> T | None:
        """Return an object of the copy, or None."""
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def get_key(self, key: str) -> T | None:
        """Return an object by its `object_key`, or None."""
        return self._objects.get(key)

    def by_index(self, index: str, value: str) -> list[T]:
        """Return the objects with this value in an index. Raises KeyError for an unknown index."""
        return list(self._indexed[index].get(value, {}).values())

    def add_handler(self, handler: Handler[T]) -> None:
        """Call a handler for each change, at once with an add for each object in the copy."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            handler(None, obj)

    @property
    def is_synced(self) -> bool:
        """Return whether the first list has completed."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Block until the first list has completed."""
        await self._synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled. Logs failed requests and retries them with backoff."""
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        while True:
            try:
                if not self._resource_version:
                    await self._list()
                    backoff.reset()
                await self._follow(backoff)
            except ExpiredError:
                self._resource_version = ""
                await self._clock.sleep(backoff.next_s())
            except (StatusError, UnreachableError) as error:
                pause_s = backoff.next_s()
                log.warning(
                    "list or watch failed",
                    resource=self.resource.plural,
                    error=error,
                    retry_s=round(pause_s, 1),
                )
                await self._clock.sleep(pause_s)

    async def _list(self) -> None:
        pages = self._client.pages(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=self._page_size,
        )
        listed: set[str] = set()
        revision = ""
        async for page in pages:
            for obj in page.items:
                key = object_key(meta_of(obj))
                listed.add(key)
                self._replace(key, obj)
            revision = page.metadata.resource_version
        for key in self._objects.keys() - listed:
            self._replace(key, None)
        self._resource_version = revision
        self._synced.set()

    async def _follow(self, backoff: Backoff) -> None:
        events = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._resource_version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        opened = self._clock.monotonic()
        async for event in events:
            self._apply(event)
            backoff.reset()
        if self._clock.monotonic() - opened < _SHORT_WATCH_S:
            # A proxy may close each watch at once: retry with backoff.
            await self._clock.sleep(backoff.next_s())

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.object is not None:
            key = object_key(meta_of(event.object))
            self._replace(key, None if event.type == "DELETED" else event.object)
        self._resource_version = event.resource_version

    def _replace(self, key: str, after: T | None) -> None:
        before = self._objects.get(key)
        if before is not None and after is not None and _is_same_version(before, after):
            return
        kept = after if after is None or self._keep is None else self._keep(after)
        if kept is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = kept
        self._reindex(key, before, kept)
        if before is not None or after is not None:
            for handler in self._handlers:
                handler(before, after)

    def _reindex(self, key: str, before: T | None, after: T | None) -> None:
        for name, values_of in self._indexes.items():
            table = self._indexed[name]
            if before is not None:
                for value in values_of(before):
                    bucket = table.get(value)
                    if bucket is not None:
                        bucket.pop(key, None)
                        if not bucket:
                            del table[value]
            if after is not None:
                for value in values_of(after):
                    table.setdefault(value, {})[key] = after


def _is_same_version(before: Object, after: Object) -> bool:
    return bool(meta_of(before).resource_version == meta_of(after).resource_version)
