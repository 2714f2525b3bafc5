"""Watches: options, start revision, and the mapping of changes to events.

An object that enters a selection is ADDED to its watchers, one that leaves is DELETED with its old
content. Source: API concepts "Efficient detection of changes", KEP-3157 (initial events).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from moorage.api.errors import ExpiredError, FieldError, InvalidError
from moorage.registry.kind import Kind
from moorage.registry.listing import (
    MATCH_WITH_CONTINUE,
    NOT_OLDER_THAN,
    parse_revision,
    too_large,
)
from moorage.registry.selection import EVERYTHING, Selection
from moorage.registry.stored import Stored
from moorage.storage import CacheEvent, CompactedError, WatchCache, Watcher

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

W = TypeVar("W")
Encode = Callable[[str, Stored], W]
"""(event type, object) → the frame that the watcher queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Options of a watch."""

    selection: Selection = EVERYTHING
    resource_version: str = ""
    match: str = ""
    allows_bookmarks: bool = False
    sends_initial_events: bool | None = None
    has_continue: bool = False


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


def open_watch(
    cache: WatchCache[Stored],
    kind: Kind,
    namespace: str,
    options: WatchOptions,
    encode: Encode[W],
) -> Watch[W]:
    """Start a watch; end it with `close_watch`.

    Raises ExpiredError for a revision before the window, ServerTimeoutError for initial events at
    a revision above the present one, InvalidError for conflicting options.
    """
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
        watcher = cache.watch(prefix, after, _selector(options.selection, encode))
    except CompactedError as error:
        raise ExpiredError(f"too old resource version: {after} ({error.compacted})") from error
    present = (
        [item for item in cache.scan(prefix) if options.selection.matches(item)]
        if wants_present
        else []
    )
    return Watch(
        present,
        cache.revision,
        bool(wants_present and options.allows_bookmarks),
        watcher,
        prefix,
    )


def close_watch(cache: WatchCache[Stored], watch: Watch[W]) -> None:
    cache.unwatch(watch.prefix, watch.watcher)


def _selector(selection: Selection, encode: Encode[W]) -> Callable[[CacheEvent[Stored]], W | None]:
    if selection.is_everything:
        return lambda event: encode(event.type, event.item)

    def select(event: CacheEvent[Stored]) -> W | None:
        was_in = event.before is not None and selection.matches(event.before)
        is_in = event.type != DELETED and selection.matches(event.item)
        if is_in:
            return encode(MODIFIED if was_in else ADDED, event.item)
        if not was_in:
            return None
        if event.type == DELETED:
            return encode(DELETED, event.item)
        assert event.before is not None
        return encode(DELETED, event.before.at(event.revision))

    return select


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
