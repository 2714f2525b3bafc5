"""Connections to extension servers: where they are, their TLS, and bounded requests of our own."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from moorage.api.errors import StatusError
from moorage.apiserver.aggregation.services import Extension
from moorage.apiserver.endpoints.proxy.headers import (
    copied_headers,
    request_headers,
    switching_headers,
)
from moorage.apiserver.endpoints.replies import TEXT, Reply, overloaded, text_reply
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.core import CONFIG_MAP
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.wire.serving import Budget
from moorage.wire.streaming.connection import Deadlines
from moorage.wire.streaming.dial import Connector, Refused, Upstream, dial
from moorage.wire.streaming.pipe import join
from moorage.wire.streaming.upgrade import (
    SUBPROTOCOL,
    HandledResponse,
    offered_subprotocols,
    take_over,
    upgrade_of,
)
from moorage.wire.webhooks import CallError, read_bounded

# Front proxy: how the API server proves itself to extension servers, and names the user.
#
# It has an authority of its own: a certificate of the cluster's authority must never pass as one
# that may speak for any user. Extension servers read what to trust from a ConfigMap. Source: API
# docs "Configure the Aggregation Layer"; `clusterauthenticationtrust` of Kubernetes 1.36.

NAME = "front-proxy-client"
"""The name in the certificate, the only one that extension servers accept."""

_NAMESPACE = "kube-system"
_CONFIG_MAP = "extension-apiserver-authentication"
_TOKEN_CHARS = "!#$&'*+-.^_`|~"
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))


class FrontProxy(msgspec.Struct, frozen=True):
    """PEM files: the certificate for extension servers, its authority, and that of all clients."""

    certificate: Path
    key: Path
    authority: Path
    client_authority: Path

    def context(self, bundle: bytes, *, is_insecure: bool) -> ssl.SSLContext:
        """Return how to connect to a server that a CA bundle in PEM vouches for, or nothing.

        Without a bundle the system's authorities do. Raises ValueError for one that cannot be read.
        """
        try:
            context = ssl.create_default_context(cadata=bundle.decode("ascii", "replace") or None)
        except ssl.SSLError as error:
            raise ValueError(f"unable to load root certificates: {error.reason}") from error
        if is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.certificate, self.key)
        return context

    def trust(self) -> dict[str, str]:
        """Return the data by which extension servers identify clients and this server."""
        return {
            "client-ca-file": self.client_authority.read_text(),
            "requestheader-allowed-names": f'["{NAME}"]',
            "requestheader-client-ca-file": self.authority.read_text(),
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }


def user_headers(user: User) -> Iterator[tuple[str, str]]:
    """Yield the headers that name the user of a request to an extension server."""
    yield "X-Remote-User", user.name
    if user.uid:
        yield "X-Remote-Uid", user.uid
    for group in user.groups:
        yield "X-Remote-Group", group
    for key, values in user.extra.items():
        for value in values:
            yield f"X-Remote-Extra-{quote(key, safe=_TOKEN_CHARS)}", value


async def write_trust(objects: Objects, front_proxy: FrontProxy) -> None:
    """Write the ConfigMap by which extension servers authenticate; other keys of it stay."""
    request = Request(user=_USER, is_own=True, user_agent="apiserver/aggregation")
    kind, data = CONFIG_MAP, front_proxy.trust()
    if objects.find(kind, _NAMESPACE, _CONFIG_MAP) is None:
        wanted: Obj = {"metadata": {"name": _CONFIG_MAP, "namespace": _NAMESPACE}, "data": data}
        await objects.create(request, kind, kind.storage, _NAMESPACE, wanted)
        return

    def make_new(old: Obj | None) -> Obj:
        assert old is not None
        return {**old, "data": {**old.get("data", {}), **data}}

    await objects.update(request, kind, kind.storage, _NAMESPACE, _CONFIG_MAP, make_new)


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


# Forwarding of requests to extension servers, upgraded connections too.
#
# The user goes along in headers that the extension server believes because of our certificate;
# the caller's own credentials stay here. Answers are copied as they come, so a large one takes no
# memory; redirects are refused. Source: kube-aggregator `handler_proxy`.

_UNAVAILABLE = "service unavailable\n"
_REDIRECTED = "the backend attempted to redirect this request, which is not permitted"
ANSWER_S = 60.0
"""How long a server may take to begin its answer: kube-apiserver's request timeout."""

_REQUESTS = 400
_REQUESTS_OF_USER = 100


class ExtensionProxy:
    """Passes requests on. A slow server takes none of the slots of this server's own requests."""

    def __init__(
        self, backends: Backends, deadlines: Deadlines | None = None, answer_s: float = ANSWER_S
    ) -> None:
        self._backends = backends
        self._answer_s = answer_s
        self._deadlines = deadlines or Deadlines()
        self._slots = Budget(total=_REQUESTS, per_user=_REQUESTS_OF_USER)

    async def answer(
        self,
        http: web.BaseRequest,
        user: User,
        extension: Extension,
        share: str,
        audit_id: str,
        *,
        is_stream: bool,
    ) -> Reply | web.StreamResponse:
        """Pass a request of a user on; `share` is the key that the user's requests count for."""
        if not extension.is_available:
            return text_reply(_UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE)
        if is_stream:
            # As everywhere, a watch is not counted: it lasts as long as its client wants.
            share = ""
        if not self._slots.take(share):
            return overloaded()
        try:
            return await self._passed_on(http, user, extension, audit_id)
        except StatusError:
            return text_reply(_UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE)
        except TimeoutError:
            return text_reply("request timed out\n", HTTPStatus.GATEWAY_TIMEOUT)
        except aiohttp.ClientConnectionResetError as error:
            raise ConnectionResetError(f"the proxied connection broke: {error}") from error
        except (aiohttp.ClientError, ValueError) as error:
            text = f"error trying to reach service: {str(error) or type(error).__name__}\n"
            return text_reply(text, HTTPStatus.SERVICE_UNAVAILABLE)
        finally:
            self._slots.give_back(share)

    async def _passed_on(
        self, http: web.BaseRequest, user: User, extension: Extension, audit_id: str
    ) -> Reply | web.StreamResponse:
        query = http.rel_url.raw_query_string
        path = http.rel_url.raw_path
        url = self._backends.url(extension, f"{path}?{query}" if query else path)
        headers = [*request_headers(http, path), *user_headers(user)]
        if protocol := upgrade_of(http):
            return await self._upgraded(http, extension, url, headers, protocol)
        async with asyncio.timeout(self._answer_s) as patience:
            async with self._backends.http.request(
                http.method,
                URL(url, encoded=True),
                headers=CIMultiDict([*headers, ("Host", http.host)]),
                data=http.content if http.can_read_body else None,
                allow_redirects=False,
                ssl=self._backends.context(extension),
                server_hostname=extension.server_name,
            ) as answer:
                # A watch lasts as long as its client reads.
                patience.reschedule(None)
                return await _copied(http, answer, audit_id)

    async def _upgraded(
        self,
        http: web.BaseRequest,
        extension: Extension,
        url: str,
        headers: list[tuple[str, str]],
        protocol: str,
    ) -> Reply | web.StreamResponse:
        lines = [line for line in headers if line[0].lower() != "content-length"]
        if subprotocols := offered_subprotocols(http):
            lines.append((SUBPROTOCOL, ", ".join(subprotocols)))
        upstream = Upstream(
            url=url, ssl=self._backends.context(extension), server_name=extension.server_name
        )
        try:
            async with dial(upstream, http.method, protocol, lines, self._deadlines) as answer:
                if isinstance(answer, Refused):
                    if _is_redirect(answer.head.status):
                        return text_reply(_REDIRECTED, HTTPStatus.BAD_GATEWAY)
                    content_type = answer.head.headers.get("Content-Type", TEXT)
                    return Reply(answer.body, answer.head.status, content_type)
                client = await take_over(http, protocol, switching_headers(answer.head))
                async with client:
                    await join(client, answer.connection, self._deadlines)
        except OSError as error:
            raise ConnectionResetError(f"the stream broke: {str(error) or 'timed out'}") from error
        return HandledResponse()


def _is_redirect(status: int) -> bool:
    return HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST


async def _copied(
    http: web.BaseRequest, answer: aiohttp.ClientResponse, audit_id: str
) -> Reply | web.StreamResponse:
    """Copy an answer to the client as it comes, unless it redirects."""
    if _is_redirect(answer.status) and answer.headers.get("Location"):
        return text_reply(_REDIRECTED, HTTPStatus.BAD_GATEWAY)
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in copied_headers(answer.headers):
        response.headers.add(name, value)
    response.headers["Audit-Id"] = audit_id
    await response.prepare(http)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response
