"""Pod streaming through the node agent: logs, exec, attach and port-forward.

    GET  pods/x/log               ─▶ GET  https://NODE/containerLogs/ns/pod/container
                                     (to the client as a body or as websocket messages)
    POST pods/x/exec|attach       ─▶ POST https://NODE/exec|attach/ns/pod/container   (upgraded)
    POST pods/x/portforward       ─▶ POST https://NODE/portForward/ns/pod             (upgraded)

SPDY and the older websocket protocols pass as bytes, those of port-forward among them
(`v4.channel.k8s.io`, which the Python and JavaScript clients speak). A version 5 websocket into a
container is translated to SPDY towards the node, which every engine supports. Source: core/v1
PodLogOptions, PodExecOptions, PodPortForwardOptions; kubelet server's URL forms; KEP-4006.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from moorage.api.errors import (
    BadRequestError,
    ForbiddenError,
    InternalError,
    NotFoundError,
    StatusError,
)
from moorage.api.numbers import parse_int
from moorage.api.pods import ENDED_PHASES
from moorage.apiserver.endpoints.admitting import admit_connection
from moorage.apiserver.endpoints.call import Call, share_of
from moorage.apiserver.endpoints.node_agents import AgentContexts, NodeAgent, NodeTls, agent_of
from moorage.apiserver.endpoints.replies import TEXT, Reply
from moorage.apiserver.endpoints.routing import is_true
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.objects import Admission, Objects
from moorage.wire.streaming import byte_socket
from moorage.wire.streaming import channel_socket as channels
from moorage.wire.streaming.channel_socket import TUNNEL, Tunnel, accept
from moorage.wire.streaming.connection import Deadlines
from moorage.wire.streaming.dial import Connector, Refused, Upgraded, Upstream, dial
from moorage.wire.streaming.pipe import join
from moorage.wire.streaming.spdy import SpdySession
from moorage.wire.streaming.unfinished import Unfinished
from moorage.wire.streaming.upgrade import (
    PROTOCOL_VERSION,
    SPDY,
    WEBSOCKET,
    HandledResponse,
    offered_subprotocols,
    passed_back,
    passed_on,
    take_over,
    upgrade_of,
)

Answered = Reply | web.StreamResponse

_PORT_FORWARD = "portforward"
_PORT_FORWARD_PROTOCOL = "portforward.k8s.io"
_NODE_PATHS = {"exec": "exec", "attach": "attach", _PORT_FORWARD: "portForward"}
# Names of the streams in the node's URL. Source: kubelet `remotecommandserver.NewOptions`.
_STREAM_FLAGS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
STREAMS = tuple(_STREAM_FLAGS)
_LOG_OPTIONS = (
    "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes",
    "stream",
)  # fmt: skip
_CONNECT_S = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class _Place(msgspec.Struct, frozen=True):
    """A container and its node agent."""

    agent: NodeAgent
    pod: str
    container: str

    def at(self, action: str, query: Iterable[tuple[str, str]]) -> URL:
        """Return the URL of an action. Raises ValueError as `ServerAddress.url`."""
        parts = (self.pod, self.container) if self.container else (self.pod,)
        asked = urlencode(list(query))
        target = f"/{action}/{'/'.join(parts)}" + (f"?{asked}" if asked else "")
        return self.agent.address.url(target)


class Connect:
    """Serves the streaming subresources of pods. `async with` holds the connections to nodes."""

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
        self._unfinished = Unfinished()
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def log(self, call: Call) -> Answered:
        """Serve `pods/log`: the requested part of a container's log."""
        pod = self._objects.get(call.kind, call.namespace, call.target.name).obj
        container = _chosen(pod, call.query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            # No container has run yet, so there is no log. Source: `StreamObject` without a stream.
            return Reply(b"", HTTPStatus.NO_CONTENT, TEXT)
        place = self._place(pod, container)
        asked = [(name, call.query[name]) for name in _LOG_OPTIONS if call.query.get(name)]
        try:
            async with self._http.get(
                place.at("containerLogs", asked),
                allow_redirects=False,
                ssl=self._contexts.of(place.agent.node),
            ) as answer:
                if answer.status in _REDIRECTS:
                    raise InternalError.of(f"GET {answer.url.path}: redirects forbidden")
                if answer.status != 200:
                    raise _log_error(call, answer.status, await answer.text())
                if upgrade_of(call.http) == WEBSOCKET:
                    return await _send_log(call, answer)
                return await _copy_log(call, answer)
        except aiohttp.ClientError as error:
            message = f"dialing the node agent of {pod['spec']['nodeName']}: {error}"
            raise InternalError.of(message) from error

    async def stream(self, call: Call) -> Answered:
        """Serve `pods/exec`, `pods/attach` and `pods/portforward` on the upgraded connection.

        A websocket starts with GET, yet it needs the verb `create` as SPDY's POST does. Source:
        feature gate AuthorizePodWebsocketUpgradeCreatePermission (1.35).
        """
        call.require("create")
        options = await admit_connection(self._admission, call, options_of(call))
        pod = self._objects.get(call.kind, call.namespace, call.target.name).obj
        protocol = upgrade_of(call.http)
        if not protocol:
            raise BadRequestError("Upgrade request required")
        upstream = self._upstream(call, pod, options)
        offered = offered_subprotocols(call.http) if protocol == WEBSOCKET else ()
        try:
            if TUNNEL in offered:
                return await self._tunnelled(call, upstream)
            # Clients offer version 5 for port-forward too, which does not define it.
            if channels.V5 in offered and call.target.subresource != _PORT_FORWARD:
                return await self._bridged(call, upstream, options)
            return await self._piped(call, upstream, protocol)
        except OSError as error:
            raise ConnectionResetError(f"the stream broke: {str(error) or 'timed out'}") from error

    async def _piped(self, call: Call, upstream: Upstream, protocol: str) -> Answered:
        lines = passed_on(call.http)
        async with dial(upstream, call.http.method, protocol, lines, self._deadlines) as answer:
            if isinstance(answer, Refused):
                return _refusal(answer)
            client = await take_over(call.http, protocol, passed_back(answer.head))
            call.started(101)
            async with client:
                await join(client, answer.connection, self._deadlines)
        return HandledResponse()

    async def _bridged(self, call: Call, upstream: Upstream, options: Obj) -> Answered:
        async with self._spdy(upstream, channels.V4) as answer:
            if isinstance(answer, Refused):
                return _refusal(answer)
            session = SpdySession(answer.connection)
            wanted = channels.wanted_channels(
                {name: "true" for name in STREAMS if options.get(name)}
            )
            async with asyncio.timeout(self._deadlines.stream_creation_s):
                streams = await channels.open_streams(session, wanted)
            websocket = await accept(call.http, channels.V5)
            call.started(101)
            self._unfinished.bound(call.http, websocket, share_of(call.user))
            await channels.bridge(websocket, session, streams, self._deadlines)
        return websocket

    async def _tunnelled(self, call: Call, upstream: Upstream) -> Answered:
        async with self._spdy(upstream, _PORT_FORWARD_PROTOCOL) as answer:
            if isinstance(answer, Refused):
                return _refusal(answer)
            websocket = await accept(call.http, TUNNEL)
            call.started(101)
            self._unfinished.bound(call.http, websocket, share_of(call.user))
            await join(Tunnel(websocket), answer.connection, self._deadlines)
            await websocket.close()
        return websocket

    def _spdy(
        self, upstream: Upstream, version: str
    ) -> AbstractAsyncContextManager[Upgraded | Refused]:
        return dial(upstream, "POST", SPDY, ((PROTOCOL_VERSION, version),), self._deadlines)

    def _upstream(self, call: Call, pod: Obj, options: Obj) -> Upstream:
        subresource = call.target.subresource
        container = "" if subresource == _PORT_FORWARD else _stream_container(call, pod, options)
        if not pod["spec"].get("nodeName"):
            raise BadRequestError(f"pod {pod['metadata']['name']} does not have a host assigned")
        place = self._place(pod, container)
        url = place.at(_NODE_PATHS[subresource], _stream_query(options))
        return Upstream(url=str(url), ssl=self._contexts.of(place.agent.node))

    def _place(self, pod: Obj, container: str) -> _Place:
        node_name = pod["spec"]["nodeName"]
        try:
            node = self._objects.get(NODE, "", node_name).obj
        except NotFoundError as error:
            raise InternalError.of(f"node {node_name!r} of the pod does not exist") from error
        meta = pod["metadata"]
        path = f"{quote(meta['namespace'])}/{quote(meta['name'])}"
        return _Place(agent_of(node), path, quote(container))


def options_of(call: Call) -> Obj:
    """Return the options of a stream as the object that admission sees.

    Raises BadRequestError for ports that are no numbers.
    """
    query = call.http.query
    if call.target.subresource == _PORT_FORWARD:
        # Several in one value too, as the Python client sends them.
        texts = (text for value in query.getall("ports", []) for text in value.split(","))
        ports = [_port(text) for text in texts]
        return {"ports": ports} if ports else {}
    options: Obj = {name: True for name in _STREAM_FLAGS if is_true(query, name)}
    if query.get("container"):
        options["container"] = query["container"]
    if call.target.subresource == "exec":
        options["command"] = query.getall("command", None)
    return options


def _port(text: str) -> int:
    try:
        return parse_int(text)
    except ValueError as error:
        raise BadRequestError(str(error)) from error


def _containers(pod: Obj) -> list[str]:
    spec = pod["spec"]
    groups = ("containers", "initContainers", "ephemeralContainers")
    return [container["name"] for group in groups for container in spec.get(group) or ()]


def _chosen(pod: Obj, wanted: str) -> str:
    """Return the requested or default container. Raises BadRequestError, worded as upstream."""
    spec = pod["spec"]
    name: str = pod["metadata"]["name"]
    regular: list[str] = [container["name"] for container in spec["containers"]]
    if wanted:
        if wanted not in _containers(pod):
            raise BadRequestError(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(regular) == 1:
        return regular[0]
    message = f"a container name must be specified for pod {name}, choose one of: {_list(regular)}"
    initial = [container["name"] for container in spec.get("initContainers") or ()]
    if initial:
        message += f" or one of the init containers: {_list(initial)}"
    raise BadRequestError(message)


def _list(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


def _stream_container(call: Call, pod: Obj, options: Obj) -> str:
    if pod.get("status", {}).get("phase") in ENDED_PHASES:
        phase = pod["status"]["phase"]
        raise BadRequestError(
            f"cannot exec into a container in a completed pod; current phase is {phase}"
            if call.target.subresource == "exec"
            else f"cannot attach a container in a completed pod; current phase is {phase}"
        )
    return _chosen(pod, options.get("container", ""))


def _stream_query(options: Obj) -> list[tuple[str, str]]:
    """Return the query of the node's URL."""
    return [
        *(("port", str(port)) for port in options.get("ports") or ()),
        *((flag, "1") for name, flag in _STREAM_FLAGS.items() if options.get(name)),
        *(("command", word) for word in options.get("command") or ()),
    ]


def _refusal(answer: Refused) -> Reply:
    """Return the node's error with its status code: container not found, command missing."""
    content_type = answer.head.headers.get("Content-Type", TEXT)
    return Reply(answer.body, answer.head.status, content_type)


def _log_error(call: Call, status: int, text: str) -> StatusError:
    """Return the node's error as the API's. Source: `GenericHttpResponseChecker`."""
    resource, name = "pods/log", call.target.name
    message = text.strip()
    if status == 400:
        return BadRequestError(message)
    if status == 404:
        return NotFoundError(
            f"the server could not find the requested resource ({resource} {name})",
            _details(name, message),
        )
    return InternalError(
        f"an error on the server ({_quoted(message)}) has prevented the request from succeeding "
        f"({resource} {name})",
        _details(name, message),
    )


def _details(name: str, message: str) -> dict[str, Any]:
    cause = {"reason": "UnexpectedServerResponse", "message": message}
    return {"name": name, "kind": "pods/log", "causes": [cause]}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _copy_log(call: Call, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Copy the log to the response body until the node closes its connection."""
    response = web.StreamResponse(headers=_log_headers(call.audit_id))
    await response.prepare(call.http)
    call.started(200)
    async for piece, _ in answer.content.iter_chunks():
        await response.write(piece)
    return response


async def _send_log(call: Call, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Copy the log to websocket messages. Raises ForbiddenError for an unknown subprotocol."""
    offered = offered_subprotocols(call.http)
    protocol = byte_socket.chosen_protocol(offered)
    if protocol is None:
        known = ", ".join(filter(None, byte_socket.PROTOCOLS))
        raise ForbiddenError(
            f"the websocket subprotocols {_list(offered)} are not spoken for logs: offer none, or "
            f"one of {known}"
        )

    async def pieces() -> AsyncIterator[bytes]:
        try:
            async for piece, _ in answer.content.iter_chunks():
                yield piece
        except aiohttp.ClientError as error:
            raise byte_socket.BrokenStreamError(f"the node agent broke off: {error}") from error

    try:
        return await byte_socket.send_bytes(call.http, protocol, pieces())
    except OSError as error:
        raise ConnectionResetError(f"the log's client is gone: {error}") from error


def _log_headers(audit_id: str) -> Mapping[str, str]:
    return {
        "Audit-Id": audit_id,
        "Cache-Control": "no-cache, private",
        "Content-Type": "text/plain",
    }
