"""REST client of an API server: typed verbs over HTTP(S), watches as async iterators.

Objects are sent as given (struct or JSON dict) and returned as the resource's struct. A refused
request raises `StatusError` with the server's message, one without an answer `UnreachableError`.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from moorage.api.errors import StatusError, TooLargeError, UnauthorizedError
from moorage.api.headers import STORE_HEADER
from moorage.api.meta import ListMeta, Object
from moorage.wire.client.config import ClientConfig, load_pair
from moorage.wire.client.connector import OPENING_S, Connector
from moorage.wire.client.credential_plugin import (
    Credential,
    CredentialPluginError,
    PluginCredentials,
)
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.sockets import kept_alive
from moorage.wire.metrics import RequestMetrics
from moorage.wire.metrics.requests import NO_ANSWER

T = TypeVar("T", bound=Object)
Answer = TypeVar("Answer")

_REQUEST_TIMEOUT_S = 60.0
_WATCH_S = 300.0
_WATCH_GRACE_S = 15.0
# A further connection costs both sides a handshake, which takes longer than waiting for an open
# one. Watches and streams are not counted.
_EXCHANGES_AT_ONCE = 8
_MAX_BUSY_RETRIES = 10
_BUSY_CODES = frozenset({429, 503})
_SECONDS = re.compile("[0-9]{1,9}")
_LONGEST_BUSY_S = 60
PAGE_SIZE = 500
_FEWER = 4
"""By how much a page shrinks that was too large."""


class UnreachableError(OSError):
    """The server cannot be reached, or the connection broke before the end of its answer."""


class AnswerTooLargeError(TooLargeError):
    """The answer has more bytes than were to be read."""


def unreachable(error: Exception) -> UnreachableError:
    """Return the error of a request that failed below HTTP, with the server and why."""
    is_tls = isinstance(error, aiohttp.ClientSSLError)
    if is_tls or not isinstance(error, aiohttp.ClientConnectorError):
        return UnreachableError(str(error) or type(error).__name__)
    cause, why = error.os_error, error.os_error.strerror
    # Negative numbers are of the resolution of names, and have their text.
    if cause.errno is not None and cause.errno > 0:
        why = os.strerror(cause.errno)
    return UnreachableError(f"cannot connect to {error.host}:{error.port}: {why or cause}")


class PatchType(Enum):
    """Types of patch; the value is the media type of the body."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change. `type` is ADDED, MODIFIED or DELETED; bookmarks carry no object."""

    type: str
    object: T | None
    resource_version: str


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """Objects of a collection, and the list metadata with the revision they were read at."""

    items: list[T]
    metadata: ListMeta


class _WireEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _WireList(msgspec.Struct):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_event_decoder = msgspec.json.Decoder(_WireEvent)
_list_decoder = msgspec.json.Decoder(_WireList)
_partial_decoder = msgspec.json.Decoder(PartialObject)


class Client:
    """A connection pool to one API server under one identity.

    Use as `async with Client(config, user_agent="…") as client`; leaving closes the connections.
    Methods that send a request raise StatusError (NotFoundError, ConflictError, …) when the server
    refuses, UnreachableError when it does not answer, and RuntimeError when the client is not open.
    """

    def __init__(self, config: ClientConfig, *, user_agent: str, watch_s: float = _WATCH_S) -> None:
        """`watch_s` is the shortest time that a watch is asked to last, twice that the longest.

        Many clients that start together so come back apart. Source: client-go's Reflector.
        """
        self._config = config
        self._watch_s = watch_s
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._decoders: dict[type[Object], msgspec.json.Decoder[Any]] = {}
        self._token = _TokenSource(config.token, config.token_file)
        self._plugin = PluginCredentials(config.plugin) if config.plugin is not None else None
        self._tls: ssl.SSLContext | None = None
        self._presented = b""
        self._exchanges = asyncio.Semaphore(_EXCHANGES_AT_ONCE)
        self._store = ""
        self._check_write: Callable[[], None] | None = None
        self.metrics = RequestMetrics()
        self._host = URL(config.server).authority

    def require_store(self, identity: str) -> None:
        """Raise UnreachableError, from now on, for each response that names another store.

        `identity` is that of `store_of`; "" lifts the requirement.
        """
        self._store = identity

    def check_writes(self, check: Callable[[], None]) -> None:
        """Call `check` before each request that is no GET, from now on; what it raises is raised.

        It raises StatusError or UnreachableError, as callers expect of a request.
        """
        self._check_write = check

    async def store_of(self, resource: Resource[Any], field_selector: str = "") -> str:
        """Return the identity of the store that a resource's lists come from, "" if unnamed."""
        query = {"limit": "1", "fieldSelector": field_selector}
        async with self.stream("GET", resource.path(), query=query) as response:
            return response.headers.get(STORE_HEADER, "")

    @property
    def server(self) -> str:
        """Return the server's URL."""
        return self._config.server

    async def __aenter__(self) -> Self:
        self._tls = context = self._config.ssl_context()
        connector = Connector(
            ssl=context if context is not None else False, limit=0, socket_factory=kept_alive
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent},
            timeout=aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S, connect=OPENING_S),
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises NotFoundError when it does not exist."""
        body = await self.request("GET", resource.path(namespace, name))
        return self._decode(resource, body)

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList[T]:
        """Return every matching object, read in pages of one revision.

        Raises ExpiredError when that revision is compacted between two pages.
        """
        items: list[T] = []
        metadata = ListMeta()
        pages = self.pages(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )
        async for page in pages:
            items += page.items
            metadata = page.metadata
        return ObjectList(items, metadata)

    async def pages(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        most_bytes: int | None = None,
    ) -> AsyncIterator[ObjectList[T]]:
        """Yield every matching object in pages of one revision. Raises as `list`.

        With `most_bytes` no page has more: it is asked for again with fewer objects. Raises
        AnswerTooLargeError for an object that alone has more.
        """
        token, size = "", page_size
        while True:
            try:
                body = await self.request(
                    "GET",
                    resource.path(namespace),
                    query={
                        "labelSelector": label_selector,
                        "fieldSelector": field_selector,
                        "limit": str(size),
                        "continue": token,
                    },
                    accept=_accept(resource, is_list=True),
                    most_bytes=most_bytes,
                )
            except AnswerTooLargeError:
                if size == 1:
                    raise
                size = max(1, size // _FEWER)
                continue
            size = min(page_size, 2 * size)
            page = _decoded(_list_decoder, body)
            items = [self._decode(resource, raw) for raw in page.items or ()]
            yield ObjectList(items, page.metadata)
            token = page.metadata.continue_
            if not token:
                return

    async def create(
        self,
        resource: Resource[T],
        obj: T | Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        name: str | None = None,
    ) -> T:
        """Create an object, or POST to a subresource of `name`. Returns the server's answer.

        Raises AlreadyExistsError when the name is taken.
        """
        body = await self.request(
            "POST", resource.path(namespace, name, subresource), body=encode(resource, obj)
        )
        return self._decode(resource, body)

    async def update(
        self,
        resource: Resource[T],
        obj: T | Mapping[str, Any],
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> T:
        """Replace an object or its subresource. Returns the object as stored.

        Raises ConflictError when `obj` carries a resourceVersion that is not the current one.
        """
        body = await self.request(
            "PUT", resource.path(namespace, name, subresource), body=encode(resource, obj)
        )
        return self._decode(resource, body)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        kind: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Patch an object or its subresource. Returns the object as stored.

        `patch` is the body before JSON encoding; `force` applies to APPLY only.
        """
        body = await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            body=msgspec.json.encode(patch),
            content_type=kind.value,
            query={"fieldManager": field_manager, "force": "true" if force else ""},
            accept=_accept(resource),
        )
        return self._decode(resource, body)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: str | None = None,
    ) -> None:
        """Delete an object. It still exists afterwards if it has a grace period or finalizers.

        Raises ConflictError when the object has another `uid` or `resource_version` than the given
        one.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": grace_period_seconds,
            "propagationPolicy": propagation_policy,
            "preconditions": _present(preconditions) or None,
        }
        await self.request(
            "DELETE",
            resource.path(namespace, name),
            body=msgspec.json.encode(_present(options)),
            accept=_accept(resource),
        )

    async def delete_collection(
        self, resource: Resource[Any], namespace: str | None = None, *, label_selector: str = ""
    ) -> None:
        """Delete every matching object of a collection."""
        await self.request(
            "DELETE",
            resource.path(namespace),
            query={"labelSelector": label_selector},
            accept=_accept(resource, is_list=True),
        )

    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        """Yield the changes after a revision, bookmarks included, until the server ends the stream.

        The server is asked to end it after a random time, 5 to 10 minutes unless the client was
        created with another. Raises ExpiredError when the revision is
        compacted: list again.
        """
        timeout_s = int(random.uniform(self._watch_s, 2 * self._watch_s))
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(timeout_s),
        }
        async with self.stream(
            "GET",
            resource.path(namespace),
            query=query,
            accept=_accept(resource),
            timeout_s=timeout_s + _WATCH_GRACE_S,
        ) as response:
            try:
                async for line in _lines(response.content):
                    yield self._event(resource, line)
            except (TimeoutError, aiohttp.ClientError) as error:
                raise UnreachableError(f"watch of {resource.plural} broke: {error}") from error

    def _event(self, resource: Resource[T], line: bytes) -> WatchEvent[T]:
        wire = _decoded(_event_decoder, line)
        if wire.type == "ERROR":
            raise StatusError.from_object(msgspec.json.decode(wire.object))
        if wire.type == "BOOKMARK":
            version = _decoded(_partial_decoder, wire.object).metadata.resource_version
            return WatchEvent(wire.type, None, version)
        decoded = self._decode(resource, wire.object)
        return WatchEvent(wire.type, decoded, meta_of(decoded).resource_version)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        most_bytes: int | None = None,
    ) -> bytes:
        """Send a request and return the body of the answer.

        A 429 or 503 answer with Retry-After is retried up to ten times, after at most 60 s each.
        Blocks while eight requests of this client are in flight. Raises AnswerTooLargeError for an
        answer of more than `most_bytes`.
        """
        for attempt in range(_MAX_BUSY_RETRIES + 1):
            async with self._exchanges, self.stream(
                method, path, body=body, query=query, content_type=content_type, accept=accept,
                is_checked=False,
            ) as response:  # fmt: skip
                answer = await _read(response, most_bytes)
                pause = response.headers.get("Retry-After", "")
                is_busy = response.status in _BUSY_CODES and _SECONDS.fullmatch(pause)
                if not is_busy or attempt == _MAX_BUSY_RETRIES:
                    _raise_for_status(response, answer)
                    return answer
            await asyncio.sleep(min(int(pause), _LONGEST_BUSY_S))
        raise AssertionError("the loop returns or raises")

    def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float | None = None,
        is_checked: bool = True,
    ) -> _Response:
        """Send a request whose answer the caller reads: `async with client.stream(…) as response`.

        With `timeout_s` only the connecting and the silence between two reads are limited, else
        the whole exchange (60 s). With `is_checked` an answer of status 300 or more raises
        StatusError.
        """
        if self._session is None:
            raise RuntimeError("the client is not open: use it as `async with Client(…)`")
        if self._check_write is not None and method != "GET":
            self._check_write()
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        token = self._token.current()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        timeout = (
            aiohttp.ClientTimeout(total=None, connect=OPENING_S, sock_read=timeout_s)
            if timeout_s is not None
            else aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S, connect=OPENING_S)
        )
        send = partial(
            self._session.request,
            method,
            self._config.server.rstrip("/") + path,
            params=_present(query or {}),
            data=body,
            timeout=timeout,
            allow_redirects=False,
        )
        note = partial(self.metrics.answered, method, self._host)
        if self._plugin is not None and not token:
            return _PluginResponse(
                partial(self._send_with_plugin, send, headers),
                self._plugin,
                is_checked=is_checked,
                store=self._store,
                note=note,
            )
        return _Response(send(headers=headers), is_checked=is_checked, store=self._store, note=note)

    async def _send_with_plugin(
        self, send: Callable[..., Any], headers: Mapping[str, str]
    ) -> tuple[Any, Credential]:
        """Return the exchange of a request with the plugin's credential, and the credential."""
        credential = await self._plugin_credential()
        return send(headers={**headers, **_bearer(credential.token)}), credential

    async def _plugin_credential(self) -> Credential:
        """Return the plugin's credential, with its certificate on connections from now on.

        Raises UnreachableError.
        """
        assert self._plugin is not None
        try:
            credential = await self._plugin.current()
        except CredentialPluginError as error:
            raise UnreachableError(str(error)) from error
        if credential.certificate and credential.certificate != self._presented:
            if self._tls is not None:
                try:
                    load_pair(self._tls, credential.certificate, credential.key)
                except ssl.SSLError as error:
                    raise UnreachableError(f"the plugin's certificate: {error}") from error
            self._presented = credential.certificate
        return credential

    @asynccontextmanager
    async def websocket(
        self, path: str, subprotocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket to a path, and close it with the block.

        Raises StatusError when the server refuses the upgrade, and UnreachableError when the
        connection fails.
        """
        if self._session is None:
            raise RuntimeError("the client is not open: use it as `async with Client(…)`")
        token = self._token.current()
        if self._plugin is not None and not token:
            token = (await self._plugin_credential()).token
        headers = _bearer(token or "")
        url = URL(self._config.server.rstrip("/") + path, encoded=True)
        try:
            async with self._session.ws_connect(
                url, protocols=(subprotocol,), headers=headers, max_msg_size=0
            ) as websocket:
                yield websocket
        except aiohttp.WSServerHandshakeError as error:
            raise StatusError(
                f"the server refused the upgrade: {error.message}", code=error.status
            ) from error
        except (TimeoutError, aiohttp.ClientError) as error:
            raise unreachable(error) from error

    def _decode(self, resource: Resource[T], body: bytes | msgspec.Raw) -> T:
        decoder = self._decoders.get(resource.type)
        if decoder is None:
            decoder = self._decoders[resource.type] = msgspec.json.Decoder(resource.type)
        decoded: T = _decoded(decoder, body)
        return decoded


class _Response:
    """Context manager of one exchange; translates transport errors to UnreachableError."""

    def __init__(
        self,
        request: Any,
        *,
        is_checked: bool,
        store: str = "",
        note: Callable[[str, float], None] | None = None,
    ) -> None:
        self._store = store
        self._note = note
        self._started_s = asyncio.get_running_loop().time()
        self._request = request
        self._is_checked = is_checked

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            response: aiohttp.ClientResponse = await self._request.__aenter__()
        except (TimeoutError, aiohttp.ClientError) as error:
            self._count(NO_ANSWER)
            raise unreachable(error) from error
        self._count(str(response.status))
        store = response.headers.get(STORE_HEADER, self._store)
        if self._store and store != self._store:
            response.close()
            raise UnreachableError(f"{response.url.origin()} serves {store}, not {self._store}")
        if self._is_checked and response.status >= 300:
            # Reading to the end returns the connection to the pool.
            _raise_for_status(response, await _read(response))
        return response

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._request.__aexit__(*exc_info)

    def _count(self, code: str) -> None:
        if self._note is not None:
            self._note(code, asyncio.get_running_loop().time() - self._started_s)


class _PluginResponse(_Response):
    """Exchange whose credential comes from a plugin, which runs again for one that is refused."""

    def __init__(
        self,
        send: Callable[[], Awaitable[tuple[Any, Credential]]],
        plugin: PluginCredentials,
        **options: Any,
    ) -> None:
        super().__init__(None, **options)
        self._send = send
        self._plugin = plugin

    async def __aenter__(self) -> aiohttp.ClientResponse:
        self._request, credential = await self._send()
        try:
            response = await super().__aenter__()
        except UnauthorizedError:
            self._plugin.refuse(credential)
            raise
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._plugin.refuse(credential)
        return response


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


class _TokenSource:
    """Source of the bearer token: a fixed one, or the current content of a file."""

    def __init__(self, token: str | None, path: Path | None) -> None:
        self._token = token
        self._path = path
        self._read_at_mtime_ns = -1

    def current(self) -> str | None:
        """Return the token. Raises UnreachableError when its file cannot be read."""
        if self._path is not None:
            try:
                self._refresh(self._path)
            except OSError as error:
                # The file may be replaced at this moment: callers retry as for a server down.
                why = error.strerror or error
                raise UnreachableError(f"no token to present: {self._path}: {why}") from error
        return self._token

    def _refresh(self, path: Path) -> None:
        changed_ns = path.stat().st_mtime_ns
        if changed_ns != self._read_at_mtime_ns:
            self._token = path.read_text().strip()
            self._read_at_mtime_ns = changed_ns


def encode(resource: Resource[Any], obj: Object | Mapping[str, Any]) -> bytes:
    """Return the JSON of an object, with its kind and apiVersion first."""
    if isinstance(obj, Mapping):
        typed = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        return msgspec.json.encode(typed)
    head = msgspec.json.encode({"kind": resource.kind, "apiVersion": resource.api_version})
    rest = msgspec.json.encode(obj)
    return head if rest == b"{}" else head[:-1] + b"," + rest[1:]


def meta_of(obj: Any) -> Any:
    """Return an object's metadata; every typed object has it."""
    return obj.metadata


def _accept(resource: Resource[Any], *, is_list: bool = False) -> str:
    if resource.type is not PartialObject:
        return "application/json"
    form = "PartialObjectMetadataList" if is_list else "PartialObjectMetadata"
    return f"application/json;as={form};g=meta.k8s.io;v=v1,application/json"


async def _read(response: aiohttp.ClientResponse, most_bytes: int | None = None) -> bytes:
    try:
        if most_bytes is None:
            return await response.read()
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > most_bytes:
                response.close()
                raise AnswerTooLargeError(f"the answer has more than {most_bytes} bytes")
        return bytes(body)
    except (TimeoutError, aiohttp.ClientError) as error:
        raise UnreachableError(f"the answer broke off: {error}") from error


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    pending = b""
    async for chunk in content.iter_any():
        *complete, pending = (pending + chunk).split(b"\n")
        for line in complete:
            if line:
                yield line


def _decoded(decoder: msgspec.json.Decoder[Answer], body: bytes | msgspec.Raw) -> Answer:
    """Decode an answer. Raises UnreachableError for what is no object of the API."""
    try:
        return _decoded_with_nulls(decoder, body)
    except msgspec.DecodeError as error:
        raise UnreachableError(f"the server's answer cannot be read: {error}") from error


def _decoded_with_nulls(decoder: msgspec.json.Decoder[Answer], body: bytes | msgspec.Raw) -> Answer:
    """Decode an answer; null stands for an absent field, as in Go.

    An API server in Go writes null for an empty required list, such as an EndpointSlice's
    `endpoints`. Few objects have one, so nulls are removed only where the types do not fit.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        return decoder.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(body))))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _raise_for_status(response: aiohttp.ClientResponse, answer: bytes) -> None:
    # A redirect is a failure too: its body is not an object.
    if response.status < 300:
        return
    try:
        status = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        raise StatusError.from_object(status)
    text = answer.decode(errors="replace").strip()[:1024]
    raise StatusError.from_object({"code": response.status, "message": text or response.reason})


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "")}
