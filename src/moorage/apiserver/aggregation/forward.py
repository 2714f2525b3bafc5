"""Forwarding of requests to extension servers, upgraded connections too.

The user goes along in headers that the extension server believes because of our certificate; the
caller's own credentials stay here. Answers are copied as they come, so a large one takes no memory;
redirects are refused. Source: kube-aggregator `handler_proxy`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from moorage.api.errors import StatusError
from moorage.apiserver.aggregation.backend import Backends
from moorage.apiserver.aggregation.front_proxy import user_headers
from moorage.apiserver.aggregation.services import Extension
from moorage.apiserver.endpoints.proxy.headers import (
    copied_headers,
    request_headers,
    switching_headers,
)
from moorage.apiserver.endpoints.replies import TEXT, Reply, overloaded, text_reply
from moorage.apiserver.registry.request import User
from moorage.wire.serving import Budget
from moorage.wire.streaming.deadlines import Deadlines
from moorage.wire.streaming.dial import Refused, Upstream, dial
from moorage.wire.streaming.pipe import join
from moorage.wire.streaming.takeover import HandledResponse, take_over
from moorage.wire.streaming.upgrade import SUBPROTOCOL, offered_subprotocols, upgrade_of

_UNAVAILABLE = "service unavailable\n"
_REDIRECTED = "the backend attempted to redirect this request, which is not permitted"
_ANSWER_S = 60.0
"""How long a server may take to begin its answer: kube-apiserver's request timeout."""

_REQUESTS = 400
_REQUESTS_OF_USER = 100


class ExtensionProxy:
    """Passes requests on. A slow server takes none of the slots of this server's own requests."""

    def __init__(self, backends: Backends, deadlines: Deadlines | None = None) -> None:
        self._backends = backends
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
        async with asyncio.timeout(_ANSWER_S) as patience:
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
