"""Node HTTPS endpoint, in the kubelet's URL forms.

Every request passes the certificate check. Exec, attach and port-forward become raw pipes; the
others are plain responses. Source: kubelet server; API server's `pods/log`, `pods/exec`, … proxies.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from moorage.api.logs import Log
from moorage.linux.descriptors import descriptor_limit
from moorage.node.options import ServerOptions
from moorage.node.pods.context import NodeContext
from moorage.node.pods.pod_manager import PodManager
from moorage.node.server.container_logs import ContainerLogs
from moorage.node.server.statistics import Statistics
from moorage.node.server.streams import Streams
from moorage.wire.cri import CriError
from moorage.wire.metrics import CONTENT_TYPE, exposition, process_families
from moorage.wire.serving import Acceptor, Limits, prove, server_context

# Endpoint access control: admits the API server by its client certificate.
#
# The TLS layer has verified the signature against the client CA; here the common name is checked.
# Source: kubelet authentication/authorization, in its simplest form (x509, fixed names).

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(names: frozenset[str]) -> Any:
    """Return middleware that admits only these common names.

    When empty, any verified certificate is admitted.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        if not certificate:
            return web.Response(status=401, text="Unauthorized")
        user = common_name(certificate)
        if names and user not in names:
            return web.Response(
                status=403,
                text=f"Forbidden (user={user}, verb={_verb(request)}, resource=nodes, "
                "subresource(s)=[proxy])\n",
            )
        prove(request)
        return await handler(request)

    return check


def common_name(certificate: dict[str, Any]) -> str:
    """Return a certificate's last common name, which the API server goes by; empty without one."""
    entries = [entry for group in certificate.get("subject", ()) for entry in group]
    return next((str(value) for key, value in reversed(entries) if key == "commonName"), "")


_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}


def _verb(request: web.Request) -> str:
    return _VERBS.get(request.method, request.method.lower())


log = Log(__name__)

_PROBER = ("prober_",)
_SHUTDOWN_S = 1.0


async def serve(options: ServerOptions, context: NodeContext, pod_manager: PodManager) -> None:
    """Serve until cancelled. Raises OSError when files are missing or the port is in use."""
    runner = web.AppRunner(
        _application(options, context, pod_manager),
        access_log=None,
        shutdown_timeout=_SHUTDOWN_S,
        handler_cancellation=True,
    )
    await runner.setup()
    assert runner.server is not None
    try:
        family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
        listener = socket.create_server((options.address, options.port), family=family)
        limits = Limits.for_descriptors(descriptor_limit())
        tls = server_context(options.certificate_file, options.key_file, options.client_ca_file)
        async with Acceptor(runner.server, [listener], limits, tls):
            log.info("node endpoint open", address=options.address, port=options.port)
            await asyncio.get_running_loop().create_future()
    finally:
        await runner.cleanup()


def _application(
    options: ServerOptions, context: NodeContext, pod_manager: PodManager
) -> web.Application:
    application = web.Application(middlewares=[guard(options.api_server_names)])
    endpoints = _Endpoints(context, pod_manager)
    streams = Streams(context, pod_manager)
    plain: list[tuple[str, Handler]] = [
        ("/healthz", endpoints.health),
        ("/healthz/{check}", endpoints.health),
        ("/pods", endpoints.pods),
        ("/runningpods/", endpoints.pods),
        ("/stats/summary", endpoints.summary),
        ("/metrics", endpoints.metrics),
        ("/metrics/probes", endpoints.probe_metrics),
        ("/metrics/resource", endpoints.resource_metrics),
        (
            "/containerLogs/{namespace}/{pod}/{container}",
            ContainerLogs(context, pod_manager).handle,
        ),
    ]
    pipes: list[tuple[str, Handler]] = [
        ("/exec/{namespace}/{pod}/{container}", streams.exec),
        ("/exec/{namespace}/{pod}/{uid}/{container}", streams.exec),
        ("/attach/{namespace}/{pod}/{container}", streams.attach),
        ("/attach/{namespace}/{pod}/{uid}/{container}", streams.attach),
        ("/portForward/{namespace}/{pod}", streams.port_forward),
        ("/portForward/{namespace}/{pod}/{uid}", streams.port_forward),
    ]
    application.add_routes([web.get(path, handler) for path, handler in (*plain, *pipes)])
    application.add_routes([web.post(path, handler) for path, handler in pipes])
    application.add_routes(
        [
            web.post("/run/{namespace}/{pod}/{container}", streams.run),
            web.post("/run/{namespace}/{pod}/{uid}/{container}", streams.run),
        ]
    )
    return application


class _Endpoints:
    """Handlers of plain responses."""

    def __init__(self, context: NodeContext, pod_manager: PodManager) -> None:
        self._context = context
        self._pod_manager = pod_manager
        self._statistics = Statistics(context, pod_manager)

    async def health(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok")

    async def pods(self, request: web.Request) -> web.Response:
        """Return the pods of this node with their latest computed status."""
        del request
        items = [
            msgspec.structs.replace(worker.pod, status=worker.status)
            for worker in self._pod_manager
        ]
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def summary(self, request: web.Request) -> web.Response:
        del request
        try:
            summary = await self._statistics.summary()
        except CriError as error:
            return web.Response(status=500, text=str(error))
        return web.Response(body=msgspec.json.encode(summary), content_type="application/json")

    async def metrics(self, request: web.Request) -> web.Response:
        del request
        metrics = self._context.metrics
        pods, containers = self._statistics.running()
        metrics.running_pods.set(pods)
        for state, count in containers.items():
            metrics.running_containers.set(count, container_state=state)
        others = exposition((*self._context.client.metrics.families(), *process_families()))
        return _exposition(metrics.text(["kubelet_"]) + others)

    async def probe_metrics(self, request: web.Request) -> web.Response:
        del request
        return _exposition(self._context.metrics.text(_PROBER))

    async def resource_metrics(self, request: web.Request) -> web.Response:
        del request
        try:
            return _exposition(await self._statistics.resource_metrics())
        except CriError as error:
            return web.Response(status=500, text=str(error))


def _exposition(text: str) -> web.Response:
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
