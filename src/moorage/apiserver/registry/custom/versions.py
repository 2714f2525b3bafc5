"""Versions of a custom resource: how an object stored in one is seen in another, and written.

    stored bytes ── fit to the version they have ── convert ── prune ──▶ the version asked for
    an object    ── convert ── fit to the storage version ──▶ bytes to store

An object whose mark says that it fits as it is costs nothing. Else it is fitted when it is read, as
a schema may have changed since, or converted. Source: apiextensions `customresource_handler`
(`crdConversionRESTOptionsGetter`) of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, ParamSpec, TypeVar

import msgspec

from moorage.api.errors import ServerTimeoutError, TooLargeError
from moorage.apiserver.registry.custom.conversion import ConversionError, Converter, in_turn
from moorage.apiserver.registry.custom.decoding import CustomType
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.stored import Stored, to_value

BATCH_OBJECTS: Final = 100
_BATCH_BYTES: Final = 1024 * 1024
"""How much is converted at a time: limits what one call of a webhook holds in memory."""

SEE_S: Final = 60.0
"""How long the objects of one request may take: each batch of a long list has a time of its own."""

SEE_GROWTH_BYTES: Final = 64 * 1024 * 1024
"""How much larger than stored the objects of one request may become together."""

_SEEN_BYTES: Final = 32 * 1024 * 1024
_TURNS: Final = 16
_THREADS: Final = 64
_THREADS_OF_DEFINITION: Final = 4
"""As many steps of one definition wait for its webhook: a silent one does not hold up others."""

_ENTRY_BYTES: Final = 256
_WAIT_S: Final = 90.0
"""How long a thread waits: longer than a conversion can take."""

P = ParamSpec("P")
R = TypeVar("R")


class SeenObjects:
    """The objects that were converted last, of all definitions, within a budget in bytes."""

    def __init__(self, most_bytes: int = _SEEN_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._seen: OrderedDict[tuple[str, str], Stored] = OrderedDict()

    def get(self, view: str, item: Stored) -> Stored | None:
        """Return an object of that revision as a view has it, None if it is not remembered."""
        seen = self._seen.get((view, item.key))
        if seen is None or not item.is_stored or seen.revision != item.revision:
            return None
        self._seen.move_to_end((view, item.key))
        return seen

    def put(self, view: str, seen: Stored) -> None:
        """Remember an object that is stored, in place of an earlier revision of it."""
        if not seen.is_stored:
            return
        key = (view, seen.key)
        before = self._seen.pop(key, None)
        if before is not None:
            self._bytes -= before.size + _ENTRY_BYTES
        self._seen[key] = seen
        self._bytes += seen.size + _ENTRY_BYTES
        while self._bytes > self._most_bytes:
            _, oldest = self._seen.popitem(last=False)
            self._bytes -= oldest.size + _ENTRY_BYTES


class Conversions(msgspec.Struct, frozen=True):
    """What conversions of all definitions share: the loop, memory, threads that may wait for it.

    Those of one request may take `see_s`; `batch` objects are converted at a time.
    """

    loop: asyncio.AbstractEventLoop
    seen: SeenObjects = msgspec.field(default_factory=SeenObjects)
    threads: ThreadPoolExecutor = msgspec.field(
        default_factory=lambda: ThreadPoolExecutor(_THREADS, thread_name_prefix="conversions")
    )
    see_s: float = SEE_S
    batch: int = BATCH_OBJECTS


class Versions:
    """The versions of one definition. `converter` is None where only the apiVersion differs."""

    def __init__(
        self,
        *,
        group: str,
        identity: str,
        types: Mapping[str, CustomType],
        storage: str,
        unmarked: str,
        converter: Converter | None,
        conversions: Conversions,
    ) -> None:
        """`identity` differs for each form of the definition.

        `storage` is the version that is written, `unmarked` that of objects without a mark, which
        were stored before there were any.
        """
        self.group = group
        self.identity = identity
        self.types = types
        self.storage = storage
        self.converter = converter
        self.conversions = conversions
        self.kinds: dict[str, Kind] = {}
        """The kinds by version, filled when they are made."""
        self.steps = asyncio.Semaphore(_THREADS_OF_DEFINITION)
        self._unmarked = unmarked

    def mark(self, version: str) -> str:
        """Return the mark of objects that fit a version."""
        return f"{version}.{self.types[version].digest}"

    def version_of(self, item: Stored) -> str:
        """Return the version in which an object is stored."""
        return item.mark.partition(".")[0] or self._unmarked

    def fitted(self, item: Stored) -> tuple[str, Obj]:
        """Return the version of a stored object, and the object fitted to its structure.

        Raises ConversionError for a version that is no longer in the definition.
        """
        version = self.version_of(item)
        type_ = self.types.get(version)
        if type_ is None:
            raise ConversionError(
                f"request to convert CR from an invalid group/version: {self.group}/{version}"
            )
        obj = item.obj
        if item.mark != self.mark(version):
            type_.refit(obj)
        return version, obj

    def renamed(self, obj: Obj, target: str) -> Obj:
        """Return a copy of an object as another version, where only the apiVersion differs."""
        copied: Obj = msgspec.json.decode(msgspec.json.encode(obj))
        self.types[target].prune(copied)
        return copied

    def convert_in_thread(self, source: str, target: str, obj: Obj) -> Obj:
        """Return an object as another version. For threads: waits for the webhook."""
        converter = self.converter
        if converter is None:
            return self.renamed(obj, target)
        if _is_on_a_loop():
            raise RuntimeError("a conversion by a webhook is waited for in a thread: View.run")
        call = converter.convert([obj], source, target)
        waiting = asyncio.run_coroutine_threadsafe(call, self.conversions.loop)
        try:
            (converted,) = waiting.result(_WAIT_S)
        finally:
            waiting.cancel()
        self.types[target].prune(converted)
        return converted


class VersionView:
    """How objects are seen in one version, and written by requests that name it."""

    def __init__(self, versions: Versions, version: str) -> None:
        self._versions = versions
        self._version = version
        self._type = versions.types[version]
        self._identity = f"{versions.identity}/{version}"
        self._turns = [asyncio.Lock() for _ in range(_TURNS)]
        mark = versions.mark(version)
        self._mark = mark
        marks = {mark}
        if versions.converter is None:
            # Where only the apiVersion differs, versions of one structure have the same bytes.
            marks |= {f"{one}.{self._type.digest}" for one in versions.types}
        self._marks = frozenset(marks)

    @property
    def is_remote(self) -> bool:
        return self._versions.converter is not None

    @property
    def mark(self) -> str:
        """Return the mark of objects that fit the version."""
        return self._mark

    def fits(self, item: Stored) -> bool:
        """Return whether an object is seen as it is stored."""
        return item.mark in self._marks

    def is_current(self, item: Stored) -> bool:
        """Return whether an object is stored as it would be written now."""
        return item.mark == self._versions.mark(self._versions.storage)

    def see_now(self, item: Stored) -> Stored:
        """Return an object in the version. Raises ConversionError where that asks a webhook."""
        if item.mark in self._marks:
            return item
        if (seen := self._versions.conversions.seen.get(self._identity, item)) is not None:
            return seen
        version, obj = self._versions.fitted(item)
        if version != self._version:
            if self.is_remote:
                raise ConversionError("objects of other versions are converted by a webhook")
            self._type.prune(obj)
        return self._remember(item, obj)

    async def see(self, items: Sequence[Stored]) -> list[Stored]:
        """Return objects in the version.

        Raises StatusError if one cannot be converted, or all not in the time of a request.
        """
        marks = self._marks
        if all(item.mark in marks for item in items):
            return list(items)
        try:
            async with asyncio.timeout(self._versions.conversions.see_s):
                return await self._see_in_batches(items)
        except TimeoutError as error:
            raise ServerTimeoutError(
                "Timeout: request did not complete within requested timeout"
            ) from error

    async def _see_in_batches(self, items: Sequence[Stored]) -> list[Stored]:
        seen: list[Stored] = []
        growth = 0
        for batch in _batches(items, self._versions.conversions.batch):
            converted = iter(await self._converted(batch)) if self.is_remote else None
            for item in batch:
                seen.append(self.see_now(item) if converted is None else next(converted))
                growth = self._grown(growth, item, seen[-1])
            if converted is None:
                # A long list must not keep other requests waiting.
                await asyncio.sleep(0)
        return seen

    def _grown(self, growth: int, item: Stored, seen: Stored) -> int:
        """Return the growth with that of an object. Raises TooLargeError."""
        growth += max(0, seen.size - item.size)
        if growth > SEE_GROWTH_BYTES:
            raise TooLargeError(
                "Request entity too large: defaults and conversions make these objects more than "
                f"{SEE_GROWTH_BYTES} bytes larger than they are stored; ask for fewer with `limit`"
            )
        return growth

    async def _converted(self, items: Sequence[Stored]) -> list[Stored]:
        """Convert a batch. The readers of one object take turns: the first converts it for all."""
        async with in_turn(self._turns[hash(items[0].key) % _TURNS]):
            return await self._converted_in_turn(items)

    async def _converted_in_turn(self, items: Sequence[Stored]) -> list[Stored]:
        # By place: the events of a watch may be of one object at several revisions.
        done: dict[int, Stored] = {}
        waiting: dict[str, list[tuple[int, Obj]]] = {}
        for place, item in enumerate(items):
            known = self._versions.conversions.seen.get(self._identity, item)
            if known is not None or self.fits(item):
                done[place] = known or item
                continue
            version, obj = self._versions.fitted(item)
            if version == self._version:
                done[place] = self._remember(item, obj)
            else:
                waiting.setdefault(version, []).append((place, obj))
        converter = self._versions.converter
        assert converter is not None, "only remote views wait"
        for version, pairs in waiting.items():
            objects = [obj for _, obj in pairs]
            converted = await converter.convert(objects, version, self._version)
            for (place, _), obj in zip(pairs, converted, strict=True):
                self._type.prune(obj)
                done[place] = self._remember(items[place], obj)
        return [done[place] for place in range(len(items))]

    def _remember(self, item: Stored, obj: Obj) -> Stored:
        seen = item.seen_as(obj, self._mark)
        self._versions.conversions.seen.put(self._identity, seen)
        return seen

    async def value_of(self, obj: Obj) -> bytes:
        """Return the bytes to store for an object of the version. Raises ConversionError."""
        versions, storage = self._versions, self._versions.storage
        if storage != self._version:
            if versions.converter is not None:
                (obj,) = await versions.converter.convert([obj], self._version, storage)
            else:
                obj = msgspec.json.decode(msgspec.json.encode(obj))
            versions.types[storage].refit(obj)
        return to_value(obj, versions.mark(storage))

    async def run(self, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a step that may call the conversions of `Kind.served`, where it may wait.

        Raises ConversionError when too many steps of the definition wait already.
        """
        if not self.is_remote:
            return step(*args, **kwargs)
        threads = self._versions.conversions.threads
        loop = asyncio.get_running_loop()
        async with in_turn(self._versions.steps):
            return await loop.run_in_executor(threads, partial(step, *args, **kwargs))

    def kept(self, item: Stored) -> Kind | None:
        """Return the kind in the version in which an object is stored, which writes it in that."""
        version = self._versions.version_of(item)
        kind = self._versions.kinds.get(version)
        if kind is None:
            return None
        return replace(kind, view=_KeptView(self._versions, version))


class _KeptView(VersionView):
    """Sees and writes objects in the version they have, and so never asks a webhook."""

    @property
    def is_remote(self) -> bool:
        return False

    def is_current(self, item: Stored) -> bool:
        return item.mark == self._mark

    async def value_of(self, obj: Obj) -> bytes:
        return to_value(obj, self._mark)


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _batches(items: Sequence[Stored], most: int) -> Iterator[Sequence[Stored]]:
    start = size = 0
    for index, item in enumerate(items):
        is_full = index - start >= most or size + item.size > _BATCH_BYTES
        if is_full and index > start:
            yield items[start:index]
            start, size = index, 0
        size += item.size
    if start < len(items):
        yield items[start:]
