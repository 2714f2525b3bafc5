"""Server of the webhook: HTTPS for API servers, with bounds on what it holds.

    POST /mutate     mutating webhook        GET /healthz, /livez   it runs
    POST /validate   validating webhook      GET /readyz            it knows the cluster

A certificate that is replaced on disk is used for the next connection. Source: API docs "Dynamic
Admission Control".
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.errors import BadRequestError, TooLargeError, UnavailableError
from moorage.attach.webhook.reviews import Reviewer, check_size, head_of
from moorage.linux.descriptors import descriptor_limit
from moorage.wire.serving import Acceptor, Budget, Limits, ServedCertificate, prove

MUTATE, VALIDATE = "/mutate", "/validate"
_LARGEST_BYTES = 8 * 1024 * 1024
"""Two objects of the largest size that API servers take, and what is around them."""
_HELD_BYTES = 32 * 1024 * 1024
"""Bodies that are held at the same time."""
_HELD_BYTES_EACH = _LARGEST_BYTES
"""Of these for one address: others that reach the port cannot keep API servers out alone."""
_BODY_S = 10.0
"""Time for a body; an API server gives a webhook at most 30 s in all."""
_SHUTDOWN_S = 5.0
_JSON = "application/json"


class WebhookOptions(msgspec.Struct, frozen=True):
    """Where to listen, and with which certificate. Port 0 is any free port."""

    certificate: Path
    key: Path
    address: str = "0.0.0.0"
    port: int = 9443


async def serve_webhook(
    reviewer: Reviewer,
    options: WebhookOptions,
    clock: Clock,
    *,
    is_ready: Callable[[], bool],
    knows: Callable[[str], Awaitable[bool]],
    started: Callable[[int], None],
    is_stopping: Callable[[], bool] = bool,
) -> None:
    """Serve until cancelled; call `started` with the port.

    While `is_stopping`, it is not ready, and answers the reviews that still come, each on a
    connection that ends with it.

    `knows` waits for a namespace that has just been created; a write in one that it does not
    return true for is refused: no policy that selects its labels may be left out.
    Raises OSError, ssl.SSLError when the certificate cannot be read or the port is in use.
    """
    certificate = ServedCertificate(options.certificate, options.key)
    answers = _Answers(reviewer, is_ready, knows, is_stopping)
    server = web.ServerRunner(
        web.Server(answers.answer, access_log=None), shutdown_timeout=_SHUTDOWN_S
    )
    await server.setup()
    assert server.server is not None
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    try:
        listener = socket.create_server((options.address, options.port), family=family)
        limits = Limits.for_descriptors(descriptor_limit())
        async with Acceptor(server.server, [listener], limits, certificate.context):
            started(listener.getsockname()[1])
            await certificate.follow(clock)
    finally:
        await server.cleanup()


class _Answers:
    def __init__(
        self,
        reviewer: Reviewer,
        is_ready: Callable[[], bool],
        knows: Callable[[str], Awaitable[bool]],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._reviews = {MUTATE: reviewer.mutate, VALIDATE: reviewer.validate}
        self._is_ready = is_ready
        self._knows = knows
        self._is_stopping = is_stopping
        self._held = Budget(total=_HELD_BYTES, per_user=_HELD_BYTES_EACH)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._answer(request)
        if self._is_stopping():
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in ("/healthz", "/livez", "/readyz"):
            if path == "/readyz" and not self._is_ready():
                return _text(503, "the cluster is not known yet")
            if path == "/readyz" and self._is_stopping():
                return _text(503, "stopping")
            return _text(200, "ok")
        review = self._reviews.get(path)
        if review is None:
            return _text(404, "404 page not found")
        if request.method != "POST":
            return _text(405, "405: method not allowed")
        if not self._is_ready():
            # Refused, rather than judged by half of the policies.
            return _text(503, "the cluster is not known yet")
        size = request.content_length
        if size is None or size > _LARGEST_BYTES:
            return _text(413, f"a review has a length, of at most {_LARGEST_BYTES} bytes")
        address = request.remote or "unknown"
        if not self._held.take(address, size):
            return _text(429, "too many reviews at the same time")
        try:
            return await self._reviewed(request, review, size)
        finally:
            self._held.give_back(address, size)

    async def _reviewed(
        self, request: web.BaseRequest, review: Callable[[bytes], bytes], size: int
    ) -> web.StreamResponse:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await request.content.readexactly(size)
        except TimeoutError:
            return _text(408, "the body did not arrive in time")
        except asyncio.IncompleteReadError:
            return _text(400, "the body ended early")
        try:
            head = head_of(body)
            try:
                check_size(body)
                if head.namespace and not await self._knows(head.namespace):
                    raise UnavailableError(
                        f"namespace {head.namespace} is not known yet; try again"
                    )
                answered = review(body)
            except (TooLargeError, UnavailableError) as error:
                answered = head.refused(error)
        except BadRequestError as error:
            return _text(400, str(error))
        prove(request)
        return web.Response(body=answered, content_type=_JSON)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
