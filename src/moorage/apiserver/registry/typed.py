"""Typed reader: stored objects as typed structs, decoded once per revision.

Admission and authorization read the same few objects (classes, roles, accounts) for every request;
this caches their decoded form until they change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Generic, TypeVar

import msgspec

from moorage.api.meta import Object
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import WatchCache

T = TypeVar("T", bound=Object)

_MOST_REMEMBERED = 10_000
_MOST_BYTES = 16 * 1024 * 1024


class TypedReader(Generic[T]):
    """Reads one kind's objects as `T`."""

    def __init__(self, cache: WatchCache[Stored], kind: Kind, type_: type[T]) -> None:
        self._cache = cache
        self._kind = kind
        self._type = type_
        self._decoded: dict[str, tuple[int, T]] = {}
        self._bytes = 0

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        # Compiled at its first use: a server may never read some of the kinds.
        return msgspec.json.Decoder(self._type)

    def get(self, name: str, namespace: str = "") -> T | None:
        item = self._cache.get(self._kind.key(namespace, name))
        return None if item is None else self._typed(item)

    def all(self, namespace: str = "") -> Iterator[T]:
        return map(self._typed, self._cache.scan(self._kind.prefix(namespace)))

    def _typed(self, item: Stored) -> T:
        known = self._decoded.get(item.key)
        if known is not None and known[0] == item.revision:
            return known[1]
        self._bytes += len(item.tail)
        if len(self._decoded) >= _MOST_REMEMBERED or self._bytes > _MOST_BYTES:
            self._decoded.clear()
            self._bytes = len(item.tail)
        typed = self._decoder.decode(b"{" + item.tail)
        self._decoded[item.key] = (item.revision, typed)
        return typed
