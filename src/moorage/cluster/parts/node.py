"""The node agent of a cluster, on the cluster's own engine or on another's."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

from moorage.api.conditions import is_ready
from moorage.api.logs import Log
from moorage.api.nodes import Node, NodeRuntimeHandler
from moorage.api.references import ObjectReference
from moorage.client import Client, EventRecorder, Informer
from moorage.client.resources import NODES
from moorage.cluster.credentials import Credentials
from moorage.cluster.engine import cgroup_root, engine_paths
from moorage.cluster.handler_news import news
from moorage.cluster.layout import Layout
from moorage.cluster.names import CLUSTER_DOMAIN, NODE_CLIENT_NAME
from moorage.cluster.notify import notify_ready
from moorage.cluster.parts.connection import connected
from moorage.cluster.settings import Settings
from moorage.cri import CriClient, CriError, engine_pb, handlers_in, handlers_of, pb
from moorage.linux.capabilities import SYS_RESOURCE, effective_capabilities
from moorage.node import COMPONENT, NodeOptions, ServerOptions, run_node

_LOWEST_OOM_SCORE = -1000
_FOLLOW_AGAIN_S = 0.5
_ENGINE_PATIENCE_S = 5.0
_LOOK_AGAIN_S = 0.02

log = Log(__name__)


async def run(layout: Layout, settings: Settings) -> None:
    """Be the cluster's node until cancelled; containers go on after that."""
    credentials = Credentials(layout)
    async with AsyncExitStack() as stack:
        endpoint = settings.cri or engine_paths(layout, settings).endpoint
        cri = await stack.enter_async_context(CriClient(endpoint))
        changed = asyncio.Event()
        if settings.cri:
            # An engine without handlers is refused before the node promises anything.
            await handlers_of(cri)
        else:
            await _await_engine(engine_paths(layout, settings).socket)
        client = await stack.enter_async_context(
            connected(settings, credentials, credentials.node, "moorage-node")
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        if not settings.cri:
            recorder = EventRecorder(client, COMPONENT, host=settings.node_name)
            about = ObjectReference(
                kind="Node", name=settings.node_name, uid=settings.node_name, api_version="v1"
            )
            tasks.create_task(recorder.run())
            tasks.create_task(_follow_handlers(cri, changed, recorder, about))
        tasks.create_task(_announce(client, settings.node_name))
        await run_node(
            client,
            cri,
            _options(layout, settings, credentials),
            read_handlers=_HandlerReader(cri).read,
            engine_changed=changed,
        )


def _options(layout: Layout, settings: Settings, credentials: Credentials) -> NodeOptions:
    server = credentials.node_server
    return NodeOptions(
        name=settings.node_name,
        node_ip=settings.node_ip,
        root_dir=layout.node,
        pod_logs_dir=layout.pod_logs,
        container_logs_dir=None,
        server=ServerOptions(
            certificate_file=server.certificate,
            key_file=server.key,
            client_ca_file=credentials.authority.certificate,
            address=settings.node_ip,
            port=settings.node_port,
            api_server_names=frozenset({NODE_CLIENT_NAME}),
        ),
        cgroup_root=cgroup_root(settings),
        oom_score_floor=_oom_score_floor(),
        cluster_domain=CLUSTER_DOMAIN,
        # Nothing routes the cluster's service addresses yet, so pods are told the real one.
        service_environment={
            "KUBERNETES_SERVICE_HOST": settings.pod_facing_address,
            "KUBERNETES_SERVICE_PORT": str(settings.api_port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(settings.api_port),
        },
        gates=settings.gates,
    )


def _oom_score_floor() -> int:
    """The lowest score that can be given here: without the right to lower it, our own."""
    if SYS_RESOURCE in effective_capabilities(Path("/proc/self/status").read_text()):
        return _LOWEST_OOM_SCORE
    return int(Path("/proc/self/oom_score_adj").read_text())


async def _await_engine(socket_path: Path) -> None:
    """Wait until our own engine takes calls, but a few seconds only: a node without one says so.

    Both start together, and nothing announces a socket; one left by an engine that was killed is
    there and takes none.
    """
    try:
        async with asyncio.timeout(_ENGINE_PATIENCE_S):
            while True:
                if _takes_calls(socket_path):
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        log.warning("engine is not there yet", socket=socket_path)


def _takes_calls(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


async def _follow_handlers(
    cri: CriClient, changed: asyncio.Event, recorder: EventRecorder, node: ObjectReference
) -> None:
    """Tell agent and people each time that our own engine has other handlers.

    The CRI has no call for that.
    """
    before: engine_pb.Handlers | None = None
    while True:
        try:
            async for now in cri.stream(cri.engine.WatchHandlers, engine_pb.WatchHandlersRequest()):
                changed.set()
                for each in news(before, now):
                    recorder.record(node, each.type, each.reason, each.message)
                before = now
        except CriError as error:
            log.debug("engine's handlers are not followed now", reason=error.sentence)
        await asyncio.sleep(_FOLLOW_AGAIN_S)


class _HandlerReader:
    """The engine's handlers. Older engines tell them in a long answer, asked for only once."""

    def __init__(self, cri: CriClient) -> None:
        self._cri = cri
        self._told: tuple[NodeRuntimeHandler, ...] = ()

    async def read(self, status: pb.StatusResponse) -> tuple[NodeRuntimeHandler, ...]:
        listed = handlers_in(status)
        if listed:
            return listed
        if not self._told:
            self._told = await handlers_of(self._cri)
        return self._told


async def _announce(client: Client, name: str) -> None:
    """Say that this part is ready once the node is."""
    ready = asyncio.Event()

    def look(before: Node | None, after: Node | None) -> None:
        del before
        if after is not None and is_ready(after.status.conditions):
            ready.set()

    node = Informer(client, NODES, field_selector=f"metadata.name={name}")
    node.add_handler(look)
    following = asyncio.ensure_future(node.run())
    try:
        await ready.wait()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    notify_ready()
