"""Webhooks of users: HTTPS calls of admission and conversion webhooks.

Whatever a webhook does (hangs, answers without end, redirects), a call ends within its time and
memory, with an error that says why.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakValueDictionary

import aiohttp
import msgspec
from yarl import URL

from moorage.api.errors import StatusError
from moorage.wire.streaming.dial import Connector

# HTTPS client for webhooks: certificate checks, time limits, bounded answers.
#
# Source: apiserver `util/webhook`.

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Limit on an answer: a patch in base64 that replaces the largest object."""

LARGE_ANSWER_BYTES: Final = 64 * 1024
"""An answer above this is read when it is its turn, so that many occupy the memory of a few."""

_LARGE = 16
_LARGE_OF_HOST = 4
_CONNECTIONS = 256
_CONNECTIONS_OF_HOST = 64
_CONTEXTS = 64
_SHOWN_BYTES = 256
_JSON = "application/json"
_USER_AGENT = "kube-apiserver-admission"
_REFUSALS = {
    401: "the server has asked for the client to provide credentials",
    403: "the server does not allow access to the requested resource",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
}

ServiceAuthority = Callable[[str, str, int], str]
"""Returns the `HOST:PORT` of a pod behind a service, by namespace, name and port.

Raises StatusError without one.
"""


class CallError(Exception):
    """A webhook could not be called, or answered with an error; the text says why."""


class _Target(msgspec.Struct, frozen=True):
    """Where to connect to: `shown` is the URL as in errors and the certificate's `host`."""

    shown: str
    url: str
    host: str
    authority: str


class WebhookClient:
    """Posts to webhooks. `async with` holds the connections."""

    def __init__(
        self,
        service_authority: ServiceAuthority,
        turns: LargeAnswerTurns | None = None,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`most_bytes` limits answers whose call sets no limit of its own."""
        self._service_authority = service_authority
        self._most_bytes = most_bytes
        self._contexts = TlsContexts()
        self._turns = turns or LargeAnswerTurns()
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=_CONNECTIONS, limit_per_host=_CONNECTIONS_OF_HOST),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def post(
        self,
        config: dict[str, Any],
        body: bytes,
        timeout_s: float,
        *,
        announces_timeout: bool = True,
        most_bytes: int | None = None,
    ) -> bytes:
        """Post JSON to the webhook of a `WebhookClientConfig` and return the answer's body.

        `announces_timeout`: the URL has the timeout, as that of admission webhooks.
        `most_bytes`: the limit on the answer, else that of all. Raises CallError, also when it
        takes longer than the timeout.
        """
        shown = _shown_url(config, f"timeout={timeout_s}s" if announces_timeout else "")
        try:
            async with asyncio.timeout(timeout_s):
                target = self._target(config, shown)
                return await self._post(target, config, body, most_bytes)
        except TimeoutError as error:
            raise CallError(f'Post "{shown}": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError, ValueError, StatusError) as error:
            why = str(error) or type(error).__name__
            raise CallError(f'Post "{shown}": {why}') from error

    async def _post(
        self, target: _Target, config: dict[str, Any], body: bytes, most_bytes: int | None
    ) -> bytes:
        async with self._http.post(
            URL(target.url, encoded=True),
            data=body,
            headers={
                "Host": target.authority, "Accept": _JSON, "Accept-Encoding": "identity",
                "Content-Type": _JSON, "User-Agent": _USER_AGENT,
            },
            ssl=self._contexts.trusting(config.get("caBundle", "")),
            server_hostname=target.host,
            allow_redirects=False,
        ) as answer:  # fmt: skip
            content = await self._read(answer, target.authority, most_bytes)
            if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                raise CallError(_refusal(answer.status, content))
            return content

    async def _read(
        self, answer: aiohttp.ClientResponse, host: str, most_bytes: int | None
    ) -> bytes:
        """Read an answer whole, a large one in its turn. Raises CallError when it is too large."""
        read = bytearray()
        async for piece in answer.content.iter_any():
            read += piece
            if most_bytes is not None:
                _verify_size(read, most_bytes)
            if len(read) > LARGE_ANSWER_BYTES:
                async with self._turns.of(host):
                    limit = self._most_bytes if most_bytes is None else most_bytes
                    return await read_bounded(answer.content, limit, read)
        return bytes(read)

    def _target(self, config: dict[str, Any], shown: str) -> _Target:
        """Return where the webhook is. Raises StatusError for a service without ready pods."""
        parts = urlsplit(shown)
        service = config.get("service")
        if service is None:
            return _Target(shown, shown, parts.hostname or "", parts.netloc)
        authority = self._service_authority(
            service["namespace"], service["name"], service.get("port", 443)
        )
        url = urlunsplit(parts._replace(netloc=authority))
        return _Target(shown, url, parts.hostname or "", parts.netloc)


class LargeAnswerTurns:
    """Turns in which large answers are read: a few of each host, and a few in all."""

    def __init__(self, most: int = _LARGE, most_of_host: int = _LARGE_OF_HOST) -> None:
        self._all = asyncio.Semaphore(most)
        self._most_of_host = most_of_host
        self._hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it within the block."""
        of_host = self._hosts.setdefault(host, asyncio.Semaphore(self._most_of_host))
        async with of_host, self._all:
            yield


class TlsContexts:
    """TLS contexts by the authorities that they trust; the ones used last are kept."""

    def __init__(self, most: int = _CONTEXTS) -> None:
        self._most = most
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def trusting(self, bundle: str) -> ssl.SSLContext:
        """Return the TLS context that trusts a CA bundle, in base64; without one the system's.

        Raises ValueError for a bundle that OpenSSL cannot read.
        """
        context = self._contexts.pop(bundle, None)
        if context is None:
            pem = base64.b64decode(bundle).decode("ascii", "backslashreplace") if bundle else None
            if pem is not None and not pem.strip():
                # Without text OpenSSL's Python binding would trust the system's authorities.
                raise ValueError("unable to load root certificates: no certificate is in it")
            try:
                context = ssl.create_default_context(cadata=pem)
            except ssl.SSLError as error:
                raise ValueError(f"unable to load root certificates: {error.reason}") from error
            if len(self._contexts) >= self._most:
                self._contexts.popitem(last=False)
        self._contexts[bundle] = context
        return context


def _shown_url(config: dict[str, Any], query: str) -> str:
    """Return the URL of a webhook as errors show it."""
    service = config.get("service")
    if service is None:
        parts = urlsplit(str(config.get("url", "")))
    else:
        host = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
        parts = urlsplit(f"https://{host}/{service.get('path', '').removeprefix('/')}")
    url: str = urlunsplit(parts._replace(query=query))
    return url


async def read_bounded(
    content: aiohttp.StreamReader,
    most_bytes: int = MAX_ANSWER_BYTES,
    begun: bytes | bytearray = b"",
) -> bytes:
    """Read an answer whole, after what has been read. Raises CallError when it is too large."""
    read = bytearray(begun)
    async for piece in content.iter_any():
        read += piece
        _verify_size(read, most_bytes)
    return bytes(read)


def _verify_size(read: bytearray, limit: int) -> None:
    if len(read) > limit:
        raise CallError(f"the answer has more than {limit} bytes")


def _refusal(code: int, content: bytes) -> str:
    """Return the text for a status code that is none of success."""
    if code in _REFUSALS:
        return _REFUSALS[code]
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        text = content[:_SHOWN_BYTES].decode(errors="replace").strip() or "unknown"
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return "the server rejected our request for an unknown reason"
