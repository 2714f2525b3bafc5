"""Secure port of a part: its metrics over HTTPS on loopback, for those who may read them.

A caller shows a bearer token or a certificate of the cluster's authority; the API server says who
that is and whether `get` of the path is allowed. `/healthz`, `/livez` and `/readyz` are open, as
upstream. Source: kube-controller-manager and kube-scheduler `--secure-port`, ports 10257 and 10259.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.cluster.access.credentials import Pair
from moorage.linux.descriptors import descriptor_limit
from moorage.wire.client.delegation import Caller, DelegatedAccess
from moorage.wire.client.rest import Client, UnreachableError
from moorage.wire.metrics import CONTENT_TYPE, Family, exposition
from moorage.wire.serving import Acceptor, Limits, prove, server_context

ADDRESS = "127.0.0.1"
_OPEN = ("/healthz", "/livez", "/readyz")
_METRICS = "/metrics"
_SHUTDOWN_S = 1.0

log = Log(__name__)


async def serve_metrics(
    port: int,
    identity: Pair,
    authority: Pair,
    client: Client,
    families: Callable[[], Iterable[Family]],
    clock: Clock,
) -> None:
    """Serve until cancelled. `identity` is the server's certificate.

    Raises OSError when files are missing or the port is in use.
    """
    context = server_context(identity.certificate, identity.key, authority.certificate)
    answers = _Answers(DelegatedAccess(client, clock), families)
    server = web.ServerRunner(
        web.Server(answers.answer, access_log=None), shutdown_timeout=_SHUTDOWN_S
    )
    await server.setup()
    assert server.server is not None
    try:
        listener = socket.create_server((ADDRESS, port))
        limits = Limits.for_descriptors(descriptor_limit())
        async with Acceptor(server.server, [listener], limits, context):
            await asyncio.get_running_loop().create_future()
    finally:
        await server.cleanup()


class _Answers:
    def __init__(self, access: DelegatedAccess, families: Callable[[], Iterable[Family]]) -> None:
        self._access = access
        self._families = families

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="405: method not allowed\n")
        if request.path in _OPEN:
            return web.Response(text="ok")
        try:
            caller = await self._caller(request)
            if caller is None:
                return web.Response(status=401, text="Unauthorized\n")
            if not await self._access.may_get(caller, request.path):
                return web.Response(
                    status=403,
                    text=f'forbidden: User "{caller.name}" cannot get path "{request.path}"\n',
                )
        except (StatusError, UnreachableError) as error:
            log.warning("access to metrics not decided", error=error)
            return web.Response(status=503, text="the API server cannot be asked\n")
        prove(request)
        if request.path != _METRICS:
            return web.Response(status=404, text="404 page not found\n")
        body = exposition(self._families()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _caller(self, request: web.BaseRequest) -> Caller | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return await self._access.user_of_token(token.strip())
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        return _subject(certificate) if certificate else None


def _subject(certificate: dict[str, Any]) -> Caller | None:
    """Return the user that a verified certificate names, by its last common name."""
    entries = [entry for group in certificate.get("subject", ()) for entry in group]
    names = [value for key, value in entries if key == "commonName"]
    groups = tuple(value for key, value in entries if key == "organizationName")
    return Caller(names[-1], (*groups, "system:authenticated")) if names else None
