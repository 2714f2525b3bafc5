"""Runtime agent: what Kubernetes lacks of a node's runtimes, beside a kubelet that is not ours.

    engine ── handlers ──▶ discovery ── probe pods ──▶ kubelet ──▶ engine
                               └──▶ RuntimeProfiles, labels of the own node, events
    RuntimeInstallations ──▶ follower ──▶ engine's configuration, its restart, proof by a probe pod

Probes are pods: a kubelet stops every sandbox whose pod it does not know, whatever its labels.
Source: kubelet `HandlePodCleanups`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from moorage.api.clock import Clock, SystemClock, sleep_unless_set
from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.attach.processes.connection import LONG_WATCH_S, connected_to
from moorage.cluster.engine.handler_discovery import DiscoveryOptions, NodeDiscovery
from moorage.cluster.engine.handlers import NodeEvents, follow_handlers
from moorage.cluster.engine.target import Target, installer_of
from moorage.cluster.errors import ClusterError
from moorage.cluster.layout import Layout
from moorage.linux.idle_memory import give_back
from moorage.linux.inotify import Inotify
from moorage.runtimes.installing.engine import KUBELET_SOCKETS, sockets_in
from moorage.runtimes.installing.following import OWN_DIRECTORY, Connect, InstallationFollower
from moorage.runtimes.installing.host_access import HostAccess, find_access
from moorage.runtimes.installing.installation import Installer
from moorage.runtimes.installing.journal import MadeDirectories, made_with
from moorage.runtimes.probing.carrier import CarrierError
from moorage.runtimes.probing.evidence import Working
from moorage.runtimes.probing.host import read_host
from moorage.runtimes.probing.pod_carrier import NAMESPACE, PodCarrier
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import RUNTIME_INSTALLATIONS
from moorage.wire.client.rest import Client
from moorage.wire.client.served import run_when_served
from moorage.wire.cri import CriClient, CriError, HandlersUnknownError, pb

COMPONENT = "moorage-runtime-agent"
ENGINE_NAME = "moorage"
ENGINE_DIRECTORIES = (Path("/etc/containerd"), Path("/etc/crio"))
"""Directories of the engines' configurations, which the agent's pod mounts."""
_POLL_S = 30.0
"""How often the engine is asked for its handlers, which no CRI call announces."""
_RETRY_S = 5.0
_FIRST_ANSWER_S = 10.0
_WORKING_DEADLINE_S = 60.0
"""More than a kubelet's retry after it first saw no class of a new probe, and a slow sandbox."""

log = Log(__name__)


class NoEngineError(ClusterError):
    """No engine's CRI socket is found, or several are."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a runtime agent.

    `cri` is the engine's endpoint, empty for the only one with a usual socket. `probe_image` has
    the probes' programs and is on the node already, as the agent's own image is; without one the
    probes' image is made here and imported into the engine. `restart_command` restarts an engine
    that is no systemd service.
    """

    node: str
    data_dir: Path
    cri: str = ""
    probe_image: str = ""
    probe_namespace: str = NAMESPACE
    installs_runtimes: bool = True
    restart_command: tuple[str, ...] = ()


def find_endpoint(chosen: str, sockets: Sequence[Path] = KUBELET_SOCKETS) -> str:
    """Return the engine's endpoint: the chosen one, else that of the only usual socket. Blocks.

    Raises NoEngineError.
    """
    if chosen:
        return chosen
    present = sockets_in(sockets)
    if len(present) == 1:
        return f"unix://{present[0]}"
    listed = ", ".join(map(str, present or sockets))
    what = "several engines have sockets here" if present else "no engine has a socket here"
    raise NoEngineError(f"{what} ({listed}): name the kubelet's engine with --cri unix:///path")


async def run(config: ClientConfig, options: AgentOptions, ready: Callable[[], None]) -> None:
    """Run until cancelled, which leaves pods and runtimes as they are.

    Calls `ready` once the API server is reached and the engine has listed its handlers. An
    installation that a killed agent left is undone or completed by the next one.

    Raises NoEngineError, ApiUnusableError.
    """
    endpoint = await asyncio.to_thread(find_endpoint, options.cri)
    host = await asyncio.to_thread(find_access)
    layout = Layout(options.data_dir)
    async with AsyncExitStack() as stack:
        cri = await stack.enter_async_context(CriClient(endpoint))
        client = await stack.enter_async_context(
            connected_to(config, COMPONENT, watch_s=LONG_WATCH_S, is_patient=True)
        )
        carrier = PodCarrier(
            client,
            node=options.node,
            owner=probe_owner(options.node),
            namespace=options.probe_namespace,
            # Its rights are those of an agent, not of who installed it.
            has_namespace=True,
            image=options.probe_image,
        )
        recorder = EventRecorder(client, COMPONENT, host=options.node)
        about = ObjectReference(kind="Node", name=options.node, uid=options.node, api_version="v1")
        events = NodeEvents(recorder, about)
        is_own = await is_own_engine(cri, SystemClock())
        found = NodeDiscovery(
            client,
            cri,
            events,
            await asyncio.to_thread(read_host, host.process),
            node=options.node,
            carrier=carrier,
            options=DiscoveryOptions(
                is_own_engine=is_own,
                image_layout=None if options.probe_image else layout,
                writes_conditions=False,
                working_deadline_s=_WORKING_DEADLINE_S,
                results=layout.root / "probes",
                sees_host=not host.is_contained,
            ),
        )
        changed = asyncio.Event()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(recorder.run())
        tasks.create_task(found.run())
        tasks.create_task(remove_idle_classes(found, carrier, SystemClock()))
        if is_own:
            tasks.create_task(follow_handlers(cri, events, found.note))
        else:
            tasks.create_task(follow_engine(cri, found, changed, SystemClock()))
            tasks.create_task(follow_socket(endpoint, changed))
        if options.installs_runtimes:
            if host.is_contained:
                await asyncio.to_thread(note_directories, layout.runtimes)
            connect = partial(
                _installer,
                Target(endpoint=endpoint, layout=layout),
                options,
                carrier,
                changed,
            )
            tasks.create_task(
                _follow_installations(client, options, layout, connect, recorder, host)
            )
        await found.wait_listed()
        ready()


def probe_owner(node: str) -> str:
    """Return the label value of a node's probes, which a node's name may be too long for."""
    return f"agent-{hashlib.sha256(node.encode()).hexdigest()[:32]}"


def note_directories(
    store: Path,
    directories: Sequence[Path] = ENGINE_DIRECTORIES,
    pod: Path = OWN_DIRECTORY,
) -> None:
    """Record which of the engines' directories are there only because the agent mounts them.

    Once, when the first agent starts on a node. Blocks. Raises OSError.
    """
    made = MadeDirectories(store)
    if not made.is_recorded:
        made.note(made_with(pod, directories))


async def follow_engine(
    cri: CriClient, found: NodeDiscovery, changed: asyncio.Event, clock: Clock
) -> None:
    """Read an engine's handlers at each change, and every half a minute, until cancelled."""
    known = ""
    while True:
        changed.clear()
        pause_s = _POLL_S
        try:
            status = await cri.call(cri.runtime.Status, pb.StatusRequest(), reconnect_s=_RETRY_S)
            await found.read(status)
            known = ""
        except (CriError, HandlersUnknownError) as error:
            pause_s = _RETRY_S if isinstance(error, CriError) else _POLL_S
            if str(error) != known:
                known = str(error)
                log.warning("handlers of the engine are not known", reason=known)
        await sleep_unless_set(clock, pause_s, changed)


async def follow_socket(endpoint: str, changed: asyncio.Event) -> None:
    """Set `changed` when an engine's socket is made again, which follows its restart."""
    socket = Path(endpoint.removeprefix("unix://"))
    with Inotify() as inotify:
        inotify.watch(socket.parent)
        while True:
            changes = await inotify.changes()
            if any(change.is_uncertain or change.name == socket.name for change in changes):
                changed.set()


async def remove_idle_classes(found: NodeDiscovery, carrier: PodCarrier, clock: Clock) -> None:
    """Delete the classes of probes whenever no handler waits to be probed, until cancelled."""
    news = asyncio.Event()
    found.discovery.add_listener(news.set)
    while True:
        await news.wait()
        news.clear()
        states = found.discovery.states.values()
        if any(state.working is Working.PENDING or state.lacks_features for state in states):
            continue
        try:
            await carrier.remove_classes()
            # Probes take memory that an agent at rest has no use for.
            await asyncio.to_thread(give_back)
        except CarrierError as error:
            log.warning("classes of probes stay for now", reason=error)
            await clock.sleep(_RETRY_S)
            news.set()


async def is_own_engine(cri: CriClient, clock: Clock) -> bool:
    """Return whether the engine is Moorage's, once it answers.

    Raises NoEngineError where it does not: a kubelet has started this pod by it a moment ago, so
    that the endpoint is another one's, or none's.
    """
    request = pb.VersionRequest(version="0.1.0")
    until_s = clock.monotonic() + _FIRST_ANSWER_S
    while True:
        try:
            version = await cri.call(cri.runtime.Version, request, reconnect_s=_RETRY_S)
        except CriError as error:
            if clock.monotonic() >= until_s:
                raise NoEngineError(
                    f"no engine answers at {cri.endpoint}: {error.sentence}; name the kubelet's "
                    "with --cri (agent.cri)"
                ) from error
            await clock.sleep(_RETRY_S)
        else:
            return version.runtime_name == ENGINE_NAME


@asynccontextmanager
async def _installer(
    target: Target,
    options: AgentOptions,
    carrier: PodCarrier,
    changed: asyncio.Event,
) -> AsyncIterator[Installer]:
    """Yield the installer of the node's engine, whose handlers are read again afterwards."""
    try:
        async with installer_of(
            target,
            restart_command=options.restart_command,
            report=log.warning,
            carrier=carrier,
        ) as installer:
            yield installer
    finally:
        changed.set()


async def _follow_installations(
    client: Client,
    options: AgentOptions,
    layout: Layout,
    connect: Connect,
    recorder: EventRecorder,
    host: HostAccess,
) -> None:
    follower = InstallationFollower(
        client,
        options.node,
        layout.runtimes,
        connect,
        recorder,
        is_contained=host.is_contained,
    )
    await run_when_served(client, RUNTIME_INSTALLATIONS, SystemClock(), follower.run)
