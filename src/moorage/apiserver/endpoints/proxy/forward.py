"""Proxy: passes a request on to its backend and the answer back, upgraded connections too.

The caller's credentials stay here.
Source: apimachinery `util/proxy` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from http import HTTPStatus
from typing import Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from moorage.api.errors import BadRequestError, InternalError, UnavailableError
from moorage.apiserver.endpoints.admitting import admit_connection
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.node_agents import AgentContexts, NodeTls, agent_of
from moorage.apiserver.endpoints.proxy.backends import (
    Backend,
    node_backend,
    node_of,
    pod_backend,
    service_backend,
)
from moorage.apiserver.endpoints.proxy.headers import (
    PAGE_BYTES,
    copied_headers,
    is_page,
    request_headers,
    rewrite_page,
    switching_headers,
    through_proxy,
)
from moorage.apiserver.endpoints.replies import TEXT, Reply
from moorage.apiserver.registry.objects import Admission, Objects
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

_CONNECT_S = 30.0
_DECLARED = (
    "User-Agent", "Accept", "Accept-Encoding", "Content-Type",
)  # fmt: skip
"""Headers that the HTTP library would add if the caller has none."""


class Proxy:
    """Serves `/proxy` of nodes, pods and services. `async with` holds the connections."""

    def __init__(
        self,
        objects: Objects,
        admission: Admission,
        node_tls: NodeTls,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._objects = objects
        self._admission = admission
        self._contexts = AgentContexts(node_tls)
        self._deadlines = deadlines or Deadlines()
        self._others: ssl.SSLContext
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        # As upstream: no authority vouches for the certificates of pods.
        self._others = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._others.check_hostname = False
        self._others.verify_mode = ssl.CERT_NONE
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
            skip_auto_headers=_DECLARED,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def answer(self, call: Call) -> Reply | web.StreamResponse:
        """Pass a request on after admission of its path.

        Raises UnavailableError when the backend does not answer.
        """
        prefix, path = divide(call)
        options = {"path": path} if path else {}
        if await admit_connection(self._admission, call, dict(options)) != options:
            raise InternalError.of("admission may not change the path of a proxied request")
        if not path and call.http.method in ("GET", "HEAD"):
            return _to_directory(call)
        backend = self._backend(call)
        if protocol := upgrade_of(call.http):
            return await self._upgraded(call, backend, path, protocol)
        return await self._forwarded(call, backend, prefix, path)

    def _backend(self, call: Call) -> Backend:
        name, namespace = call.target.name, call.target.namespace
        match call.kind.plural:
            case "pods":
                return pod_backend(self._objects, namespace, name)
            case "services":
                return service_backend(self._objects, namespace, name)
            case _:
                return node_backend(name, agent_of(node_of(self._objects, name)))

    def _tls(self, backend: Backend) -> ssl.SSLContext:
        return self._contexts.of(backend.agent_of) if backend.agent_of else self._others

    async def _forwarded(
        self, call: Call, backend: Backend, prefix: str, path: str
    ) -> web.StreamResponse:
        http = call.http
        headers = CIMultiDict(request_headers(call.http, prefix + path))
        headers["Host"] = http.host
        try:
            async with self._http.request(
                http.method,
                _url(call, backend, path),
                headers=headers,
                data=http.content if http.can_read_body else None,
                allow_redirects=False,
                ssl=self._tls(backend),
            ) as answer:
                return await _copied(call, answer, backend, prefix)
        except aiohttp.ClientConnectionResetError as error:
            raise ConnectionResetError(f"the proxied connection broke: {error}") from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise UnavailableError(
                f"error trying to reach service: {_unreachable(error)}"
            ) from error

    async def _upgraded(
        self, call: Call, backend: Backend, path: str, protocol: str
    ) -> Reply | web.StreamResponse:
        url = _url(call, backend, path)
        lines = [
            (name, value)
            for name, value in request_headers(call.http, call.target.path)
            if name.lower() != "content-length"
        ]
        if subprotocols := offered_subprotocols(call.http):
            lines.append((SUBPROTOCOL, ", ".join(subprotocols)))
        upstream = Upstream(url=str(url), ssl=self._tls(backend))
        try:
            async with dial(upstream, call.http.method, protocol, lines, self._deadlines) as answer:
                if isinstance(answer, Refused):
                    content_type = answer.head.headers.get("Content-Type", TEXT)
                    return Reply(answer.body, answer.head.status, content_type)
                client = await take_over(call.http, protocol, switching_headers(answer.head))
                async with client:
                    await join(client, answer.connection, self._deadlines)
        except OSError as error:
            raise ConnectionResetError(f"the stream broke: {str(error) or 'timed out'}") from error
        return HandledResponse()


def divide(call: Call) -> tuple[str, str]:
    """Return the path up to and with `/proxy`, and the rest as the client escaped it.

    Raises BadRequestError if a part before the rest has an escaped slash.
    """
    parts = call.http.rel_url.raw_path.split("/")
    named = [index for index, part in enumerate(parts) if part]
    count = 7 if call.target.namespace else 5
    if len(named) < count or parts[named[count - 1]] != call.target.subresource:
        raise BadRequestError("the path's parts up to the subresource must not be escaped")
    end = named[count - 1] + 1
    return "/".join(parts[:end]), "/".join(["", *parts[end:]])


def _to_directory(call: Call) -> Reply:
    """Return the redirect to the same path with a slash, against which pages name their links."""
    url = call.http.rel_url
    location = f"{url.raw_path}/" + (f"?{url.raw_query_string}" if url.raw_query_string else "")
    return Reply(b"", HTTPStatus.MOVED_PERMANENTLY, TEXT, {"Location": location})


def _url(call: Call, backend: Backend, path: str) -> URL:
    query = call.http.rel_url.raw_query_string
    return backend.address.url(f"{path or '/'}" + (f"?{query}" if query else ""))


async def _copied(
    call: Call, answer: aiohttp.ClientResponse, backend: Backend, prefix: str
) -> web.StreamResponse:
    """Copy a backend's answer to the client, with links that lead through the proxy."""

    def rewrite(link: str) -> str:
        return through_proxy(link, (backend.address.authority, call.http.host), prefix)

    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in copied_headers(answer.headers):
        response.headers.add(name, value)
    if location := answer.headers.get("Location"):
        response.headers["Location"] = rewrite(location)
    response.headers["Audit-Id"] = call.audit_id
    begin = b""
    encoding = answer.headers.get("Content-Encoding", "")
    if call.http.method != "HEAD" and is_page(answer.headers.get("Content-Type", ""), encoding):
        begin = await _beginning(answer.content)
        page = None
        if len(begin) <= PAGE_BYTES:
            page = await asyncio.to_thread(rewrite_page, begin, encoding, rewrite)
        if page is not None:
            begin = page
            response.headers.pop("Content-Encoding", None)
            response.headers["Content-Length"] = str(len(page))
    await response.prepare(call.http)
    call.started(answer.status)
    if begin:
        await response.write(begin)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """Return the whole content, or more than PAGE_BYTES of it."""
    pieces, size = [], 0
    async for piece in content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > PAGE_BYTES:
            break
    return b"".join(pieces)


def _unreachable(error: Exception) -> str:
    """Return why a backend cannot be reached, in upstream's words where it does not answer."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        if number in errno.errorcode:
            reason = os.strerror(number).lower()
            return f"dial tcp {error.host}:{error.port}: connect: {reason}"
    return str(error) or type(error).__name__
