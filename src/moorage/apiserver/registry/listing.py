"""Lists: the resourceVersion rules, pages and continue tokens.

Current lists come from memory; later pages are read from the store at the revision of the first
page, so pages neither overlap nor skip objects. Source: API concepts
"resourceVersion", "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api.errors import (
    BadRequestError,
    ExpiredError,
    FieldError,
    InternalError,
    InvalidError,
    ServerTimeoutError,
    StatusError,
)
from moorage.api.numbers import parse_uint
from moorage.apiserver.registry.kind import Kind, View
from moorage.apiserver.registry.schema.decode import json_name
from moorage.apiserver.registry.selection import EVERYTHING, Selection
from moorage.apiserver.registry.stored import Stored, StoredFactory
from moorage.apiserver.storage import CompactedError, Damage, Store, StoreBrokenError, WatchCache

EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"

_FRESH_TIMEOUT_S = 3.0
_CHUNK = 500
_TOKEN_VERSION = "meta.k8s.io/v1"
_AT_PRESENT = -1
_NO_BASE64URL = re.compile(r"[^A-Za-z0-9_-]")
_JSON_STARTS = frozenset(bytes((byte,)) for byte in b'{["-0123456789tfn')
MATCH_WITH_CONTINUE = "resourceVersionMatch is forbidden when continue is provided"


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a list. `resource_version` and `match` are the raw query values.

    `needs_metadata_only`: the rest of the objects is not shown, so custom resources are not
    converted for it.
    """

    selection: Selection = EVERYTHING
    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    match: str = ""
    needs_metadata_only: bool = False
    has_initial_events: bool = False
    """Whether the client set `sendInitialEvents`, which is for watches."""


class Listed(msgspec.Struct, frozen=True):
    """A page: the items, the revision they were read at, and the continue token.

    `collection`: the prefix of the keys, if the items are what the cache has under it; else empty.
    """

    items: Sequence[Stored]
    revision: int
    continue_: str = ""
    remaining: int | None = None
    damage: Sequence[Damage] = ()
    """Damage of the listed objects that cannot be read."""
    collection: str = ""


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class Lister:
    """Lists the objects of one store."""

    store: Store
    cache: WatchCache[Stored]
    factory: StoredFactory = field(repr=False)
    fresh_timeout_s: float = _FRESH_TIMEOUT_S
    """How long a list waits for a revision that the cache has not reached."""

    async def page(self, kind: Kind, namespace: str, options: ListOptions) -> Listed:
        """Return a page. Raises StatusError for invalid combinations and compacted revisions."""
        check_options(options)
        prefix = kind.prefix(namespace)
        if options.continue_:
            return await self._next_page(kind, prefix, options)
        wanted = parse_revision(options.resource_version, is_list=True)
        if wanted > self.cache.revision:
            await wait_fresh(self.cache, wanted, self.fresh_timeout_s)
        is_exact = options.match == EXACT or (wanted and options.limit and not options.match)
        if is_exact and wanted != self.cache.revision:
            return await self._page_at(kind, prefix, wanted, "", options)
        limit = options.limit if options.resource_version != "0" else 0
        return await self._page_now(kind, prefix, "", options, limit)

    def as_listed(self, items: Sequence[Stored]) -> Listed:
        """Return already selected items as a list at the present revision."""
        return Listed(items, self.cache.revision)

    async def _next_page(self, kind: Kind, prefix: str, options: ListOptions) -> Listed:
        token = decode_token(options.continue_)
        after = prefix + token.start
        if token.rv in (_AT_PRESENT, self.cache.revision):
            return await self._page_now(kind, prefix, after, options, options.limit)
        return await self._page_at(kind, prefix, token.rv, after, options)

    async def _page_now(
        self, kind: Kind, prefix: str, after: str, options: ListOptions, limit: int
    ) -> Listed:
        selection = options.selection
        items = present = self.cache.scan(prefix)
        damage = self.cache.damage_under(prefix)
        revision = self.cache.revision
        if after:
            items = [item for item in items if item.key > after]
        if not selection.is_everything:
            items = await selected_of(_view(kind, options), items, selection)
        if not limit or len(items) <= limit:
            seen = await _seen(kind, items, options)
            collection = prefix if seen is present else ""
            return Listed(seen, revision, damage=damage, collection=collection)
        page = await _seen(kind, items[:limit], options)
        return self._cut(prefix, page, len(items) - limit, revision, selection, damage)

    async def _page_at(
        self, kind: Kind, prefix: str, revision: int, after: str, options: ListOptions
    ) -> Listed:
        try:
            return await self._read_page(kind, prefix, revision, after, options)
        except CompactedError as error:
            raise _expired(prefix, after, options) from error
        except StoreBrokenError as error:
            raise InternalError.of(f"the list could not be read: {error}") from error

    async def _read_page(
        self, kind: Kind, prefix: str, revision: int, after: str, options: ListOptions
    ) -> Listed:
        items: list[Stored] = []
        damage: list[Damage] = []
        selection, limit = options.selection, options.limit
        position, has_more = after, True
        while has_more and (not limit or len(items) <= limit):
            page = await self.store.range(prefix, revision=revision, after=position, limit=_CHUNK)
            read = [self.factory(entry.key, entry.revision, entry.value) for entry in page.entries]
            items += await selected_of(_view(kind, options), read, selection)
            damage += page.damage
            position, has_more = page.last, page.has_more
        if not limit or len(items) <= limit:
            return Listed(await _seen(kind, items, options), revision, damage=damage)
        items = [*await _seen(kind, items[:limit], options), *items[limit:]]
        remaining = await self._count_after(prefix, revision, items[limit - 1].key, selection)
        return self._cut(prefix, items[:limit], remaining, revision, selection, damage)

    async def _count_after(
        self, prefix: str, revision: int, after: str, selection: Selection
    ) -> int:
        if not selection.is_everything:
            return 0
        count, has_more = 0, True
        while has_more:
            page = await self.store.range(prefix, revision=revision, after=after, limit=_CHUNK)
            count += len(page.entries)
            after, has_more = page.last, page.has_more
        return count

    def _cut(
        self,
        prefix: str,
        items: Sequence[Stored],
        remaining: int,
        revision: int,
        selection: Selection,
        damage: Sequence[Damage],
    ) -> Listed:
        token = encode_token(revision, items[-1].key.removeprefix(prefix))
        # remainingItemCount is unset with selectors: each remaining object would need matching.
        known = remaining if selection.is_everything else None
        return Listed(items, revision, token, known, damage)


def _view(kind: Kind, options: ListOptions) -> View | None:
    return None if options.needs_metadata_only else kind.view


async def _seen(kind: Kind, items: Sequence[Stored], options: ListOptions) -> Sequence[Stored]:
    """Return items as the kind's version has them. Raises StatusError."""
    view = _view(kind, options)
    return items if view is None else await view.see(items)


async def selected_of(
    view: View | None, items: Sequence[Stored], selection: Selection
) -> list[Stored]:
    """Return the selected items. Raises StatusError for one that cannot be converted.

    A selection applies to objects as a version has them: its fields are that version's, and a
    conversion may change labels. They are converted in pieces, of which only the selected objects
    are kept.
    """
    if view is None or not (view.is_remote or selection.checks):
        return [item for item in items if selection.matches(item)]
    selected: list[Stored] = []
    for start in range(0, len(items), _CHUNK):
        seen = await view.see(items[start : start + _CHUNK])
        selected += [item for item in seen if selection.matches(item)]
    return selected


def parse_revision(text: str, *, is_list: bool = False) -> int:
    """Parse a resourceVersion query value, 0 when absent.

    Raises StatusError (500, as upstream) for an invalid one, BadRequestError in a list.
    """
    if not text:
        return 0
    try:
        return parse_uint(text)
    except ValueError as error:
        why = f'resourceVersion: Invalid value: "{text}": {error}'
        if is_list:
            raise BadRequestError(f"invalid resource version: {why}") from error
        raise StatusError(why) from error


async def wait_fresh(
    cache: WatchCache[Stored], wanted: int, timeout_s: float = _FRESH_TIMEOUT_S
) -> None:
    """Wait for a revision that the cache has not reached. Raises ServerTimeoutError."""
    if not await cache.wait_for(wanted, timeout_s):
        raise too_large(wanted, cache.revision)


def too_large(wanted: int, current: int) -> ServerTimeoutError:
    """Return the error for a revision above the present one."""
    return ServerTimeoutError(
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        {
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def check_options(options: ListOptions) -> None:
    """Raise InvalidError, BadRequestError for options that do not go together."""
    if options.limit < 0:
        raise BadRequestError("invalid limit")
    field_errors: list[FieldError] = []
    match, version = options.match, options.resource_version
    path = "resourceVersionMatch"
    if match:
        if not version:
            field_errors.append(
                FieldError.forbidden(
                    path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                )
            )
        if options.continue_:
            field_errors.append(FieldError.forbidden(path, MATCH_WITH_CONTINUE))
        if match not in (EXACT, NOT_OLDER_THAN):
            field_errors.append(FieldError.not_supported(path, match, (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and version == "0":
            field_errors.append(
                FieldError.forbidden(
                    path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            )
    if options.has_initial_events:
        field_errors.append(
            FieldError.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        )
    if field_errors:
        raise InvalidError.of("ListOptions", "", field_errors, group="meta.k8s.io")
    if options.continue_ and version not in ("", "0"):
        decode_token(options.continue_)
        raise BadRequestError("specifying resource version is not allowed when using continue")


def encode_token(revision: int, last_key: str) -> str:
    token = msgspec.json.encode(_Token(_TOKEN_VERSION, revision, last_key + "\0"))
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def decode_token(text: str) -> _Token:
    """Decode a continue token. Raises BadRequestError, worded as upstream's `DecodeContinue`."""
    document = _token_document(text)
    version, revision = document.get("v", ""), document.get("rv", 0)
    start = document.get("start", "")
    if not (isinstance(version, str) and isinstance(revision, int) and isinstance(start, str)):
        raise _bad_token(": json: cannot unmarshal a field of storage.continueToken")
    if version != _TOKEN_VERSION:
        raise _bad_token(f": server does not recognize this encoded version {version}")
    if not revision:
        raise _bad_token(f": incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if not start:
        raise _bad_token(f": encoded start key empty (version {_TOKEN_VERSION})")
    if ".." in start.split("/"):
        raise _bad_token(f": {start}")
    return _Token(version, revision, start.removesuffix("\0"))


def _token_document(text: str) -> dict[str, Any]:
    illegal = _NO_BASE64URL.search(text)
    if illegal is not None or len(text) % 4 == 1:
        at = illegal.start() if illegal is not None else len(text) - 1
        raise _bad_token(f": illegal base64 data at input byte {at}")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        document = msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        first = raw.lstrip()[:1]
        why = str(error)
        if not first:
            why = "unexpected end of JSON input"
        elif first not in _JSON_STARTS:
            why = f"invalid character '{first.decode('latin-1')}' looking for beginning of value"
        raise _bad_token(f": {why}") from error
    if document is not None and not isinstance(document, dict):
        raise _bad_token(
            f": json: cannot unmarshal {json_name(document)} into Go value of type "
            "storage.continueToken"
        )
    return document or {}


def _bad_token(why: str) -> BadRequestError:
    return BadRequestError(f"invalid continue token: continue key is not valid{why}")


def _expired(prefix: str, after: str, options: ListOptions) -> StatusError:
    if not options.continue_:
        return ExpiredError("The resourceVersion for the provided list is too old.")
    error = ExpiredError(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted "
        "between the time the first chunk was returned and now may show up in the list."
    )
    error.list_meta = {"continue": encode_token(_AT_PRESENT, after.removeprefix(prefix))}
    return error
