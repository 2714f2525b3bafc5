"""Node HTTPS endpoint, in the kubelet's URL forms.

Every request passes the certificate check. Exec, attach and port-forward become raw pipes; the
others are plain responses. Source: kubelet server; API server's `pods/log`, `pods/exec`, … proxies.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from moorage.api.clock import parse_time
from moorage.api.logs import Log
from moorage.api.pods import ContainerStatus, PodStatus
from moorage.linux.descriptors import descriptor_limit
from moorage.node.logs import STDERR, STDOUT, LogOptions, LogReadError, read_log
from moorage.node.options import ServerOptions
from moorage.node.pod_facts.containers import member
from moorage.node.pods.context import NodeContext
from moorage.node.pods.pod_manager import PodManager
from moorage.node.runtime.views import ContainerView, State
from moorage.node.server.statistics import Statistics
from moorage.node.server.streams import Streams
from moorage.wire.cri import CriError
from moorage.wire.metrics import CONTENT_TYPE, exposition, process_families
from moorage.wire.serving import Acceptor, Limits, prove, server_context

# `/containerLogs/NAMESPACE/POD/CONTAINER`: serves a container's log, or the selected part of it.
#
# Source: core/v1 PodLogOptions; kubelet `getContainerLogs`, `validateContainerLogStatus`, with the
# messages that users see.

_STREAMS = {
    "": frozenset({STDOUT, STDERR}),
    "All": frozenset({STDOUT, STDERR}),
    "Stdout": frozenset({STDOUT}),
    "Stderr": frozenset({STDERR}),
}
_FALSE = frozenset({"0", "false", "False", "f", "F", "FALSE"})

_IMAGE_TEXTS = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class NoLogError(Exception):
    """There is no log to return; the text says why."""


class QueryError(ValueError):
    """A query is malformed (400) or invalid (422)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ContainerLogs:
    """Serves requests for logs."""

    def __init__(self, context: NodeContext, pod_manager: PodManager) -> None:
        self._context = context
        self._pod_manager = pod_manager

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve a log request: 404 for an unknown pod or container, 400 without a log."""
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        container = request.match_info["container"]
        try:
            options = log_options(request.query, self._context.clock.now())
        except QueryError as error:
            return web.Response(status=error.status, text=f'{{"message": "{error}"}}')
        worker = self._pod_manager.find(namespace, name)
        if worker is None:
            return web.Response(status=404, text=f'pod "{name}" does not exist')
        if member(worker.pod.spec, container) is None:
            text = f'container "{container}" not found in pod "{name}"'
            return web.Response(status=404, text=text)
        try:
            wanted = container_id(
                worker.status, name, container, is_previous=_is_true(request.query, "previous")
            )
            view = self._find(worker.uid, wanted)
        except NoLogError as error:
            return web.Response(status=400, text=str(error))
        return await self._send(request, view, options)

    def _find(self, uid: str, wanted: str) -> ContainerView:
        engine_id = wanted.rpartition("//")[2]
        for container in self._context.observer.view(uid).containers:
            if container.id == engine_id and container.log_path:
                return container
        raise NoLogError(f"unable to retrieve container logs for {wanted}")

    async def _send(
        self, request: web.Request, container: ContainerView, options: LogOptions
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        pieces = read_log(Path(container.log_path), options, lambda: self._is_running(container))
        try:
            # Read first, so that a log that cannot be opened still gets its own status code.
            first = await anext(pieces, None)
        except LogReadError as error:
            return web.Response(status=400, text=str(error))
        await response.prepare(request)
        try:
            if first is not None:
                await response.write(first)
                async for piece in pieces:
                    await response.write(piece)
        except LogReadError as error:
            await response.write(f"{error}\n".encode())
        finally:
            await pieces.aclose()
        await response.write_eof()
        return response

    async def _is_running(self, container: ContainerView) -> bool:
        for other in self._context.observer.view(container.uid).containers:
            if other.id == container.id:
                return other.state is not State.EXITED
        return False


def log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """Parse a query. Raises QueryError."""
    try:
        tail = _number(query, "tailLines")
        if query.get("tail"):
            tail = None if query["tail"] == "all" else int(query["tail"])
        limit = _number(query, "limitBytes")
        seconds = _number(query, "sinceSeconds")
        moment = parse_time(query["sinceTime"]) if query.get("sinceTime") else None
    except ValueError as error:
        raise QueryError(400, "Unable to decode query.") from error
    stream = query.get("stream", "")
    is_wrong = (
        (tail is not None and tail < 0)
        or (limit is not None and limit < 1)
        or (seconds is not None and seconds < 1)
        or (seconds is not None and moment is not None)
        or stream not in _STREAMS
        or (tail is not None and stream in ("Stdout", "Stderr"))
    )
    if is_wrong:
        raise QueryError(422, "Invalid request.")
    if seconds is not None:
        moment = now - timedelta(seconds=seconds)
    return LogOptions(
        follow=_is_true(query, "follow"),
        timestamps=_is_true(query, "timestamps"),
        since=moment,
        tail_lines=tail,
        limit_bytes=limit,
        streams=_STREAMS[stream],
    )


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if query.get(name) else None


def _is_true(query: Mapping[str, str], name: str) -> bool:
    return name in query and query[name] not in _FALSE


def container_id(status: PodStatus, pod: str, name: str, *, is_previous: bool) -> str:
    """Return the container whose log is requested, as `engine://id`. Raises NoLogError."""
    every = (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    )
    named = next(
        (container_status for container_status in every if container_status.name == name), None
    )
    if named is None:
        raise NoLogError(f'container "{name}" in pod "{pod}" is not available')
    if is_previous:
        last = named.last_state.terminated
        if last is None or not last.container_id:
            raise NoLogError(f'previous terminated container "{name}" in pod "{pod}" not found')
        return last.container_id
    return _present_id(named, f'container "{name}" in pod "{pod}" is')


def _present_id(status: ContainerStatus, subject: str) -> str:
    state, last = status.state, status.last_state.terminated
    if state.running is not None:
        return status.container_id
    for ended in (state.terminated, last):
        if ended is not None and ended.container_id:
            return ended.container_id
    if state.terminated is not None or last is not None:
        raise NoLogError(f"{subject} terminated")
    if state.waiting is None:
        raise NoLogError(f"{subject} waiting to start - no logs yet")
    reason = state.waiting.reason
    raise NoLogError(f"{subject} waiting to start: {_IMAGE_TEXTS.get(reason, reason)}")


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
        ("/runningpods", endpoints.pods),
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
    # With and without a slash at the end, as the kubelet's router.
    application.add_routes(
        [
            web.get(f"{path}{end}", handler)
            for path, handler in (*plain, *pipes)
            for end in ("", "/")
        ]
    )
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
