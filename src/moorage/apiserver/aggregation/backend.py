"""Connections to extension servers: where they are, their TLS, and bounded requests of our own."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Self

import aiohttp
import msgspec
from yarl import URL

from moorage.api.errors import StatusError
from moorage.apiserver.aggregation.front_proxy import FrontProxy, user_headers
from moorage.apiserver.aggregation.services import Extension
from moorage.apiserver.registry.request import SYSTEM_MASTERS, User
from moorage.wire.streaming.connector import Connector
from moorage.wire.webhooks import CallError, read_bounded

_CONNECT_S = 30.0
_CONTEXTS = 64
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_AGGREGATOR = User(name="system:kube-aggregator", groups=(SYSTEM_MASTERS,))

Resolve = Callable[[str, str, int], str]
"""Returns the `HOST:PORT` behind a service, by namespace, name and port. Raises StatusError."""


class FetchError(Exception):
    """An extension server did not answer a request of ours as it must."""


class Fetched(msgspec.Struct, frozen=True):
    """An answer, read whole."""

    status: int
    content_type: str
    body: bytes


class Backends:
    """Connects to extension servers. `async with` holds the connections."""

    def __init__(self, front_proxy: FrontProxy, resolve: Resolve) -> None:
        self._front_proxy = front_proxy
        self._resolve = resolve
        self._contexts: OrderedDict[tuple[bytes, bool], ssl.SSLContext] = OrderedDict()
        self.http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession(
            connector=Connector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
            skip_auto_headers=_AUTO_HEADERS,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    def url(self, extension: Extension, path_and_query: str) -> str:
        """Return the URL of a path on one of the ready endpoints. Raises StatusError."""
        authority = self._resolve(extension.namespace, extension.service, extension.port)
        return f"https://{authority}{path_and_query}"

    def context(self, extension: Extension) -> ssl.SSLContext:
        """Return the TLS context for an extension. Raises ValueError, OSError."""
        key = (extension.bundle, extension.is_insecure)
        context = self._contexts.pop(key, None)
        if context is None:
            context = self._front_proxy.context(extension.bundle, is_insecure=extension.is_insecure)
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts[key] = context
        return context

    async def fetch(
        self, extension: Extension, path: str, timeout_s: float, headers: Mapping[str, str]
    ) -> Fetched:
        """Get a document as the aggregator itself. Raises FetchError, which names the URL."""
        url = path
        try:
            url = self.url(extension, path)
            async with (
                asyncio.timeout(timeout_s),
                self.http.get(
                    URL(url, encoded=True),
                    headers=[*user_headers(_AGGREGATOR), *headers.items()],
                    ssl=self.context(extension),
                    server_hostname=extension.server_name,
                    allow_redirects=False,
                ) as answer,
            ):
                content_type = answer.headers.get("Content-Type", "")
                return Fetched(answer.status, content_type, await read_bounded(answer.content))
        except TimeoutError as error:
            raise FetchError(f'Get "{url}": context deadline exceeded') from error
        except StatusError as error:
            raise FetchError(error.message) from error
        except (aiohttp.ClientError, CallError, OSError, ValueError) as error:
            raise FetchError(f'Get "{url}": {str(error) or type(error).__name__}') from error
