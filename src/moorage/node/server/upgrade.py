"""Upgraded connection proxy to the container engine, byte by byte.

The API server's request is repeated to the engine's streaming URL with the same upgrade headers;
the engine's response is returned, and after a 101 both connections are one pipe. The protocol on it
is between the API server and the engine. Source: RFC 9110 §7.8; kubelet's `UpgradeAwareHandler`.
"""

from __future__ import annotations

from aiohttp import web

from moorage.api.logs import Log
from moorage.wire.streaming.deadlines import Deadlines
from moorage.wire.streaming.dial import Refused, Upstream, dial
from moorage.wire.streaming.pipe import join
from moorage.wire.streaming.takeover import HandledResponse, take_over
from moorage.wire.streaming.upgrade import passed_back, passed_on, upgrade_of

log = Log(__name__)


async def proxy_upgrade(
    request: web.BaseRequest, url: str, deadlines: Deadlines | None = None
) -> web.StreamResponse:
    """Join the request's connection and a new one to `url` into one pipe, until either ends.

    Returns the handler's response; an engine's refusal is returned unchanged. Raises DialError when
    the engine cannot be reached. Cancelling closes both connections.
    """
    limits = deadlines or Deadlines()
    protocol, lines = upgrade_of(request), passed_on(request)
    async with dial(Upstream(url=url), request.method, protocol, lines, limits) as answer:
        if isinstance(answer, Refused):
            return _refusal(answer)
        try:
            async with await take_over(request, protocol, passed_back(answer.head)) as client:
                await join(client, answer.connection, limits)
        except OSError as error:
            log.debug("pipe broke", error=error)
    return HandledResponse()


def _refusal(answer: Refused) -> web.Response:
    content_type = answer.head.headers.get("Content-Type", "").partition(";")[0].strip()
    return web.Response(
        status=answer.head.status, body=answer.body, content_type=content_type or None
    )
