"""Watches: options, start revision, and the mapping of changes to events.

An object that enters a selection is ADDED to its watchers, one that leaves is DELETED with its old
content. Source: API concepts "Efficient detection of changes", KEP-3157 (initial events).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from moorage.api.errors import ExpiredError, FieldError, InvalidError, StatusError
from moorage.apiserver.registry.kind import Kind, View
from moorage.apiserver.registry.listing import (
    MATCH_WITH_CONTINUE,
    NOT_OLDER_THAN,
    parse_revision,
    too_large,
)
from moorage.apiserver.registry.selection import EVERYTHING, Selection
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import CacheEvent, CompactedError, WatchCache, Watcher

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

W = TypeVar("W")
Encode = Callable[[str, Stored], W]
"""(event type, object) → the frame that the watcher queues."""


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a watch."""

    selection: Selection = EVERYTHING
    resource_version: str = ""
    match: str = ""
    allows_bookmarks: bool = False
    sends_initial_events: bool | None = None
    has_continue: bool = False


class StoredEvent:
    """An event of a watch whose objects are converted when they are sent.

    Its length is the size of the objects, which count for the queue.
    """

    __slots__ = ("before", "item", "type")

    def __init__(self, type_: str, item: Stored, before: Stored | None = None) -> None:
        self.type = type_
        self.item = item
        self.before = before

    def __len__(self) -> int:
        return self.item.size + (0 if self.before is None else self.before.size)


@dataclass(frozen=True, slots=True)
class Watch(Generic[W]):
    """An open watch: first the initial objects, then the events of the watcher.

    `ends_initial_events`: a bookmark marks the end of `initial`, at `revision`.
    """

    initial: list[Stored]
    revision: int
    ends_initial_events: bool
    watcher: Watcher[CacheEvent[Stored], W]
    prefix: str
    sees: Hashable = None


def open_watch(
    cache: WatchCache[Stored],
    kind: Kind,
    namespace: str,
    options: WatchOptions,
    encode: Encode[W],
    form: Hashable = None,
) -> Watch[W]:
    """Start a watch; end it with `close_watch`.

    `form` says what `encode` makes: it is equal where the frames of an event are. Raises
    ExpiredError for a revision before the window, ServerTimeoutError for initial events at a
    revision above the present one, InvalidError for conflicting options.
    """
    selection = options.selection
    see = _seer(kind, selection)
    return _opened(
        cache, kind, namespace, options,
        _selector(selection, see, encode), lambda item: selection.matches(see(item)),
        form if selection.is_everything else None,
    )  # fmt: skip


def open_stored_watch(
    cache: WatchCache[Stored], kind: Kind, namespace: str, options: WatchOptions
) -> Watch[StoredEvent]:
    """Start a watch of all objects as they are stored; `seen_events` converts and selects.

    For custom resources whose conversion may wait for a webhook. Raises as `open_watch`.
    """

    def select(event: CacheEvent[Stored]) -> StoredEvent:
        return StoredEvent(event.type, event.item, event.before)

    return _opened(cache, kind, namespace, options, select, lambda _: True)


def _opened(
    cache: WatchCache[Stored],
    kind: Kind,
    namespace: str,
    options: WatchOptions,
    select: Callable[[CacheEvent[Stored]], W | None],
    matches: Callable[[Stored], bool],
    sees: Hashable = None,
) -> Watch[W]:
    _check(options)
    wanted = parse_revision(options.resource_version)
    wants_present = options.sends_initial_events or (
        options.sends_initial_events is None and options.resource_version in ("", "0")
    )
    if wants_present and wanted > cache.revision:
        raise too_large(wanted, cache.revision)
    prefix = kind.prefix(namespace)
    after = cache.revision if wants_present else wanted
    if options.sends_initial_events is False and not options.resource_version:
        after = cache.revision
    try:
        watcher = cache.watch(prefix, after, select, sees)
    except CompactedError as error:
        raise ExpiredError(f"too old resource version: {after} ({error.compacted})") from error
    present = [item for item in cache.scan(prefix) if matches(item)] if wants_present else []
    return Watch(
        present,
        cache.revision,
        bool(wants_present and options.allows_bookmarks),
        watcher,
        prefix,
        sees,
    )


def _seer(kind: Kind, selection: Selection) -> Callable[[Stored], Stored]:
    """Return how a selection looks at an object: at fields as the kind's version has them."""
    view = kind.view
    if view is None or not selection.checks:
        return lambda item: item

    def see(item: Stored) -> Stored:
        try:
            return view.see_now(item)
        except StatusError:
            # The frame of the event says why.
            return item

    return see


async def seen_events(
    view: View, selection: Selection, events: Sequence[StoredEvent]
) -> list[tuple[str, Stored]]:
    """Return the events of a selection as the kind's version has them.

    Raises StatusError for an object that cannot be converted.
    """
    items = [event.item for event in events]
    if selection.is_everything:
        seen = await view.see(items)
        return [(event.type, item) for event, item in zip(events, seen, strict=True)]
    seen = await view.see(items)
    befores = iter(await view.see([event.before for event in events if event.before is not None]))
    selected: list[tuple[str, Stored]] = []
    for event, item in zip(events, seen, strict=True):
        before = None if event.before is None else next(befores)
        kept = _selected(selection, event.type, item, before)
        if kept is not None:
            selected.append(kept)
    return selected


def close_watch(cache: WatchCache[Stored], watch: Watch[W]) -> None:
    cache.unwatch(watch.prefix, watch.watcher, watch.sees)


def _selector(
    selection: Selection, see: Callable[[Stored], Stored], encode: Encode[W]
) -> Callable[[CacheEvent[Stored]], W | None]:
    if selection.is_everything:
        return lambda event: encode(event.type, event.item)

    def select(event: CacheEvent[Stored]) -> W | None:
        before = None if event.before is None else see(event.before)
        kept = _selected(selection, event.type, see(event.item), before)
        return None if kept is None else encode(*kept)

    return select


def _selected(
    selection: Selection, type_: str, item: Stored, before: Stored | None
) -> tuple[str, Stored] | None:
    """Return the event that the watchers of a selection see, None if they see none."""
    was_in = before is not None and selection.matches(before)
    is_in = type_ != DELETED and selection.matches(item)
    if is_in:
        return MODIFIED if was_in else ADDED, item
    if not was_in:
        return None
    if type_ == DELETED:
        return DELETED, item
    assert before is not None
    return DELETED, before.at(item.revision)


def _check(options: WatchOptions) -> None:
    """Raise InvalidError for options that do not go together. Source: `validateWatchOptions`."""
    path = "resourceVersionMatch"
    errors: list[FieldError] = []
    sends, match = options.sends_initial_events, options.match
    if sends is None and not match and options.resource_version in ("", "0"):
        # The defaults of a watch from the present state.
        sends, match = True, NOT_OLDER_THAN
    if sends is not None and match != NOT_OLDER_THAN:
        errors.append(
            FieldError.forbidden(
                path,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if match:
        if sends is None:
            errors.append(
                FieldError.forbidden(
                    path,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
                    "provided",
                )
            )
        if match != NOT_OLDER_THAN:
            errors.append(FieldError.not_supported(path, match, (NOT_OLDER_THAN,)))
        if options.has_continue:
            errors.append(FieldError.forbidden(path, MATCH_WITH_CONTINUE))
    if errors:
        raise InvalidError.of("ListOptions", "", errors, group="meta.k8s.io")
