"""Server of the page alone, for API servers that do not have it: `moor ui`, and the add-on's part.

    request ─▶ Door (who looks) ─▶ Site ─▶ Reader (the viewer's credentials) ─▶ API server

It only answers GET. The pages that are made at the same time, those that wait, and the time of each
are bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from aiohttp import web

from moorage.api.clock import Clock, SystemClock
from moorage.api.errors import MethodNotAllowedError, StatusError
from moorage.api.logs import Log
from moorage.apiserver.web_page.doors import ROOT, Door, Reader, Visit
from moorage.apiserver.web_page.site import HEADERS, STYLE, Page, Site
from moorage.linux.descriptors import descriptor_limit
from moorage.wire.client.rest import UnreachableError
from moorage.wire.serving import Acceptor, Limits, ServedCertificate, prove

TEXT = "text/plain; charset=utf-8"
_AT_ONCE = 2
"""Pages made at the same time. Each adds some 35 MB for any number of objects of a megabyte, and
5 MB for 100,000 pods."""
_DEADLINE_S = 60.0
_SHUTDOWN_S = 2.0
_UNAUTHORIZED = 401
_HEALTH = ("/healthz", "/livez", "/readyz")

log = Log(__name__)


class PageOptions(msgspec.Struct, frozen=True):
    """Where to listen, and with which certificate, None for plain HTTP. Port 0 is any free port.

    `waiting` visitors wait for a page at most.
    """

    address: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    waiting: int = 32


async def serve_page(
    door: Door,
    options: PageOptions,
    started: Callable[[int], None],
    clock: Clock | None = None,
    *,
    site: Site | None = None,
    prove: Callable[[web.BaseRequest], object] = prove,
) -> None:
    """Serve until cancelled; call `started` with the port.

    Raises OSError, ssl.SSLError if it is in use or the certificate cannot be read.
    """
    certificate = None
    if options.certificate is not None and options.key is not None:
        certificate = ServedCertificate(options.certificate, options.key)
    server = web.ServerRunner(
        web.Server(_Answers(door, site or Site(), options.waiting, prove).answer, access_log=None),
        shutdown_timeout=_SHUTDOWN_S,
    )
    await server.setup()
    assert server.server is not None
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    try:
        listener = socket.create_server((options.address, options.port), family=family)
        limits = Limits.for_descriptors(descriptor_limit())
        context = None if certificate is None else certificate.context
        async with Acceptor(server.server, [listener], limits, context):
            started(listener.getsockname()[1])
            if certificate is not None:
                await certificate.follow(clock or SystemClock())
            await asyncio.get_running_loop().create_future()
    finally:
        await server.cleanup()


class _Answers:
    def __init__(
        self, door: Door, site: Site, waiting: int, prove: Callable[[web.BaseRequest], object]
    ) -> None:
        self._door = door
        self._site = site
        self._most_waiting = waiting
        self._prove = prove
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in _HEALTH:
            return _text(200, "ok")
        visit = Visit(
            request.path,
            request.headers.get("Host", ""),
            request.headers.get("Authorization", ""),
        )
        try:
            path = self._door.path_of(visit)
            if request.method not in ("GET", "HEAD"):
                raise MethodNotAllowedError
            if not path:
                # Relative, for those who come through a proxy.
                return _text(301, "", Location=f"{ROOT.removeprefix('/')}/")
            if path == STYLE:
                # The same for all: it needs no turn, and does not show who asks.
                return _made(self._site.style)
            reader = self._door.reader(visit)
            if self._waiting >= self._most_waiting:
                return _text(503, "too many pages are being made", **{"Retry-After": "1"})
            response = await self._page(path, reader)
        except StatusError as error:
            return _refusal(error, self._door.challenge)
        except TimeoutError:
            return _text(504, f"the API server did not answer within {_DEADLINE_S:.0f} s")
        except UnreachableError as error:
            return _text(502, f"the API server did not answer: {error}")
        self._prove(request)
        return response

    async def _page(
        self, path: str, reader: AbstractAsyncContextManager[Reader]
    ) -> web.StreamResponse:
        self._waiting += 1
        try:
            async with asyncio.timeout(_DEADLINE_S), self._slots, reader as own:
                page = await self._site.page(path, own)
        finally:
            self._waiting -= 1
        return _made(page)


def _made(page: Page) -> web.Response:
    headers = {**page.headers, "Content-Type": page.content_type}
    return web.Response(body=page.body, headers=headers)


def _refusal(error: StatusError, challenge: str) -> web.Response:
    is_asked = challenge and error.status_code == _UNAUTHORIZED
    more = {"WWW-Authenticate": challenge} if is_asked else {}
    return _text(error.status_code, str(error), **more)


def _text(status: int, text: str, **headers: str) -> web.Response:
    all_headers = {**HEADERS, "Content-Type": TEXT, **headers}
    return web.Response(status=status, body=f"{text}\n".encode(), headers=all_headers)
