"""Health of a part in a pod: `/healthz`, `/livez`, `/readyz` and `/metrics`, over plain HTTP.

For the kubelet's probes, and for collectors of metrics; nothing of it is secret, and nothing is
taken from a caller but a path. A part that stands by for a lease is ready: another one leads.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable

from aiohttp import web

from moorage.api.logs import Log
from moorage.linux.descriptors import descriptor_limit
from moorage.wire.metrics import CONTENT_TYPE, Family, exposition
from moorage.wire.serving import Acceptor, Limits, prove

HEALTH_ADDRESS = "0.0.0.0"
"""The kubelet calls a pod at its own address."""
_OPEN = ("/healthz", "/livez", "/readyz")
_METRICS = "/metrics"
_SHUTDOWN_S = 1.0

log = Log(__name__)


async def serve_health(address: str, port: int, families: Callable[[], Iterable[Family]]) -> None:
    """Serve until cancelled. Raises OSError if the port is in use."""

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="405: method not allowed\n")
        prove(request)
        if request.path in _OPEN:
            return web.Response(text="ok")
        if request.path != _METRICS:
            return web.Response(status=404, text="404 page not found\n")
        body = exposition(families()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    server = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=_SHUTDOWN_S)
    await server.setup()
    assert server.server is not None
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, port), family=family)
        limits = Limits.for_descriptors(descriptor_limit())
        async with Acceptor(server.server, [listener], limits):
            log.info("health is served", port=listener.getsockname()[1])
            await asyncio.get_running_loop().create_future()
    finally:
        await server.cleanup()
