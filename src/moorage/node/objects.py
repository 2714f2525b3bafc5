"""ConfigMap and Secret cache: fetches the objects that this node's pods refer to, on demand.

A node may only read the objects its pods name, one by one, so there is no collection to watch: each
object is fetched, kept for a while, and fetched again when it is older than the caller accepts.
Concurrent readers share one request. Source: Node authorizer; kubelet's `Cache` change detection
strategy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from moorage.api.clock import Clock
from moorage.api.errors import ForbiddenError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, UnreachableError

log = Log(__name__)

T = TypeVar("T", bound=Object)
R = TypeVar("R")

_FORGET_S = 600.0
_AUTHORIZER_LAG_S = 3.0
_FIRST_PAUSE_S = 0.02

Key = tuple[str, str, str]


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T | None
    fetched_s: float
    used_s: float


class ObjectCache:
    """Objects by name. A missing object is cached as None for the same time."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: dict[Key, _Entry[Any]] = {}
        self._fetches: dict[Key, asyncio.Future[Any]] = {}

    async def get(
        self, resource: Resource[T], namespace: str, name: str, *, max_age_s: float
    ) -> T | None:
        """Return the object, or None if it does not exist.

        Raises StatusError or UnreachableError; while the server is unreachable, returns an older
        copy if there is one.
        """
        key = (resource.plural, namespace, name)
        entry = self._entries.get(key)
        now = self._clock.monotonic()
        if entry is not None and now - entry.fetched_s <= max_age_s:
            entry.used_s = now
            obj: T | None = entry.value
            return obj
        try:
            return await self._shared_fetch(resource, key)
        except UnreachableError:
            if entry is None:
                raise
            log.warning("using an older copy", resource=resource.plural, name=name)
            stale: T | None = entry.value
            return stale

    def forget_unused(self) -> None:
        """Drop the objects that no pod has used lately."""
        limit = self._clock.monotonic() - _FORGET_S
        self._entries = {key: entry for key, entry in self._entries.items() if entry.used_s > limit}

    async def _shared_fetch(self, resource: Resource[T], key: Key) -> T | None:
        while True:
            running = self._fetches.get(key)
            if running is None:
                break
            # If the other reader was cancelled, fetch the object here.
            await asyncio.wait((running,))
            if not running.cancelled():
                shared: T | None = running.result()
                return shared
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._fetches[key] = future
        try:
            obj = await self._fetch(resource, key)
            future.set_result(obj)
            return obj
        except (StatusError, UnreachableError) as error:
            future.set_exception(error)
            # Waiting readers get it from the future; without any, asyncio would log it as never
            # retrieved.
            future.exception()
            raise
        finally:
            if not future.done():
                future.cancel()
            del self._fetches[key]

    async def _fetch(self, resource: Resource[T], key: Key) -> T | None:
        _, namespace, name = key
        obj = await retry_forbidden(
            self._clock, lambda: _get_or_none(self._client, resource, namespace, name)
        )
        now = self._clock.monotonic()
        self._entries[key] = _Entry(obj, now, now)
        return obj


async def _get_or_none(
    client: Client, resource: Resource[T], namespace: str, name: str
) -> T | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFoundError:
        return None


async def retry_forbidden(clock: Clock, call: Callable[[], Awaitable[R]]) -> R:
    """Retry a call while it is forbidden, for a few seconds.

    Right after a pod is bound, the server's authorizer may not yet know that this node may read the
    objects that the pod names: the Node authorizer's graph is fed by informers.
    """
    deadline = clock.monotonic() + _AUTHORIZER_LAG_S
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except ForbiddenError:
            if clock.monotonic() + pause_s > deadline:
                raise
        await clock.sleep(pause_s)
        pause_s *= 2
