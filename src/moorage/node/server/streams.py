"""`/exec`, `/attach`, `/portForward` and `/run`: streams into a container, through its engine.

Source: kubelet server's URL forms and error texts; CRI streaming calls.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from aiohttp import web

from moorage.api.logs import Log
from moorage.node.pods.context import NodeContext
from moorage.node.pods.pod_manager import PodManager
from moorage.node.pods.worker import PodWorker
from moorage.node.runtime.views import ContainerView, State
from moorage.wire.cri import CriError, pb
from moorage.wire.streaming.connection import Deadlines
from moorage.wire.streaming.dial import DialError, Refused, Upstream, dial
from moorage.wire.streaming.pipe import join
from moorage.wire.streaming.upgrade import (
    HandledResponse,
    passed_back,
    passed_on,
    take_over,
    upgrade_of,
)

_HTTP_CODES = {
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
}


class Streams:
    """Serves requests that become connections into containers."""

    def __init__(self, context: NodeContext, pod_manager: PodManager) -> None:
        self._context = context
        self._pod_manager = pod_manager

    async def exec(self, request: web.Request) -> web.StreamResponse:
        """Connect the client to a command in a container."""
        container = self._container(request)
        wanted = _streams(request.query)
        cri_request = pb.ExecRequest(
            container_id=container.id,
            cmd=request.query.getall("command", []),
            tty=wanted["tty"],
            stdin=wanted["stdin"],
            stdout=wanted["stdout"],
            # A terminal has a single output stream.
            stderr=wanted["stderr"] and not wanted["tty"],
        )
        _require_upgrade(request)
        try:
            return await self._proxy_upgrade(
                request, await self._context.engine.exec_url(cri_request)
            )
        except CriError as error:
            raise _refused(error) from error

    async def attach(self, request: web.Request) -> web.StreamResponse:
        """Connect the client to a container's own streams."""
        container = self._container(request)
        wanted = _streams(request.query)
        worker = self._worker(request)
        is_terminal = any(
            candidate.tty
            for candidate in worker.pod.spec.containers
            if candidate.name == container.name
        )
        cri_request = pb.AttachRequest(
            container_id=container.id,
            stdin=wanted["stdin"],
            tty=is_terminal or wanted["tty"],
            stdout=wanted["stdout"],
            stderr=wanted["stderr"] and not (is_terminal or wanted["tty"]),
        )
        _require_upgrade(request)
        try:
            return await self._proxy_upgrade(
                request, await self._context.engine.attach_url(cri_request)
            )
        except CriError as error:
            raise _refused(error) from error

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        """Connect the client to ports of a pod."""
        worker = self._worker(request)
        uid = request.match_info.get("uid", "")
        if uid and uid != worker.uid:
            raise web.HTTPNotFound(text="pod not found")
        sandbox = self._context.observer.view(worker.uid).sandbox
        if sandbox is None or not sandbox.is_ready:
            meta = worker.pod.metadata
            text = f"failed to find sandboxID for pod {meta.name}_{meta.namespace}({worker.uid})"
            raise web.HTTPInternalServerError(text=text)
        _require_upgrade(request)
        ports = _ports(request.query.getall("port", []) or request.query.getall("ports", []))
        try:
            url = await self._context.engine.port_forward_url(sandbox.id, ports)
            return await self._proxy_upgrade(request, url)
        except CriError as error:
            raise _refused(error) from error

    async def run(self, request: web.Request) -> web.StreamResponse:
        """Run a command until it exits, and return its output."""
        container = self._container(request)
        command = request.query.get("cmd", "").split(" ")
        try:
            result = await self._context.engine.run_command(container.id, command)
        except CriError as error:
            raise _refused(error) from error
        output = result.stdout + result.stderr
        if result.exit_code != 0:
            stderr = result.stderr.decode(errors="replace")
            text = f"command '{' '.join(command)}' exited with {result.exit_code}: {stderr}"
            raise web.HTTPInternalServerError(text=text)
        return web.Response(body=output, content_type="text/plain")

    @staticmethod
    async def _proxy_upgrade(request: web.Request, url: str) -> web.StreamResponse:
        try:
            return await proxy_upgrade(request, url)
        except DialError as error:
            raise web.HTTPInternalServerError(text=str(error)) from error

    def _worker(self, request: web.Request) -> PodWorker:
        info = request.match_info
        worker = self._pod_manager.find(info["namespace"], info["pod"])
        if worker is None:
            raise web.HTTPNotFound(text="pod does not exist")
        return worker

    def _container(self, request: web.Request) -> ContainerView:
        worker = self._worker(request)
        info = request.match_info
        uid, name = info.get("uid", ""), info["container"]
        if uid and uid != worker.uid:
            raise web.HTTPNotFound(text="pod not found")
        view = self._context.observer.view(worker.uid).latest(name)
        if view is None:
            raise web.HTTPNotFound(text=f'container not found ("{name}")')
        if view.state is not State.RUNNING:
            raise web.HTTPInternalServerError(
                text=f'container "{name}" is {view.state.value}, not running'
            )
        return view


def _require_upgrade(request: web.Request) -> None:
    if not upgrade_of(request):
        raise web.HTTPBadRequest(text="Upgrade request required")


def _streams(query: Mapping[str, str]) -> dict[str, bool]:
    """Return the requested streams. Raises HTTPBadRequest when there is none."""
    names = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
    streams = {name: query.get(key) == "1" for name, key in names.items()}
    if not (streams["stdin"] or streams["stdout"] or streams["stderr"]):
        raise web.HTTPBadRequest(text="you must specify at least 1 of stdin, stdout, stderr")
    return streams


def _ports(texts: list[str]) -> list[int]:
    try:
        ports = [int(number) for text in texts for number in text.split(",")]
    except ValueError:
        raise web.HTTPBadRequest(text=f"unable to parse ports {texts}") from None
    if any(not 0 < port < 65536 for port in ports):
        raise web.HTTPBadRequest(text=f"port out of range in {ports}")
    return ports


def _refused(error: CriError) -> web.HTTPException:
    """Return the HTTP error for an engine's error."""
    code = _HTTP_CODES.get(error.code, 500)
    response = web.HTTPInternalServerError(text=error.sentence)
    response.set_status(code)
    return response


# Upgraded connection proxy to the container engine, byte by byte.
#
# The API server's request is repeated to the engine's streaming URL with the same upgrade headers;
# the engine's response is returned, and after a 101 both connections are one pipe. The protocol on
# it
# is between the API server and the engine. Source: RFC 9110 §7.8; kubelet's `UpgradeAwareHandler`.

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
