"""Node agent of a cluster, as one of its parts, on the cluster's own engine or an external one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from moorage.api.clock import SystemClock
from moorage.api.conditions import is_ready, is_true
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.api.pods import Pod
from moorage.api.runtime_group import WORKING, RuntimeProfile
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.engine.handler_discovery import NodeDiscovery, discovery_of
from moorage.cluster.engine.handlers import NodeEvents, follow_handlers, read_handlers
from moorage.cluster.engine.paths import cgroup_root, engine_paths
from moorage.cluster.engine.target import installer_of, node_target
from moorage.cluster.layout import CLUSTER_DOMAIN, DNS_SOCKET, NODE_CLIENT_NAME, RUN, Layout
from moorage.cluster.network.dns_service import apply_dns_service
from moorage.cluster.parts.connection import connected
from moorage.cluster.reservations import system_reserved
from moorage.cluster.settings import CONTROLLERS, Settings
from moorage.cluster.storage_class import create_storage_class
from moorage.cluster.supervision.readiness import notify_ready
from moorage.linux.atomic_file import write_durably
from moorage.linux.descriptors import raise_descriptor_limit
from moorage.linux.host import Host, read_host
from moorage.linux.nftables import Nftables, NftablesError
from moorage.linux.nftables_events import NftablesEvents
from moorage.network.agent import ClusterDns, NetworkAgent, NetworkRefusedError
from moorage.network.frame import IPV4
from moorage.network.unenforced import UnenforcedNetwork
from moorage.node.agent import COMPONENT, run_node
from moorage.node.configuration import NodeConfiguration, load_configuration
from moorage.node.images.verification import Verification
from moorage.node.machine.machine import this_machine
from moorage.node.options import NodeOptions, ServerOptions
from moorage.node.pod_facts.containers import sidecars
from moorage.node.pods.pod_network import PodNetworkError
from moorage.runtimes.custom_resources import install_definitions
from moorage.runtimes.installing.following import InstallationFollower
from moorage.runtimes.probing.default_classes import create_classes
from moorage.runtimes.probing.evidence import HandlerState, same_handlers
from moorage.runtimes.probing.host import read_host as read_host_facts
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import NODES, RUNTIME_INSTALLATIONS, RUNTIME_PROFILES
from moorage.wire.client.rest import Client, UnreachableError
from moorage.wire.client.served import run_when_served
from moorage.wire.cri import CriClient, engine_pb
from moorage.wire.engine_ports import EngineProcess

_ENGINE_PATIENCE_S = 5.0
_POLL_S = 0.02
# How long the announcement waits for handlers that were not probed before.
_PROBE_PATIENCE_S = 3.0

log = Log(__name__)


async def run(layout: Layout, settings: Settings) -> None:
    """Run the node agent until cancelled; containers keep running. Raises OtherStoreError."""
    raise_descriptor_limit()
    credentials = Credentials(layout)
    host = await asyncio.to_thread(read_host)
    machine = await asyncio.to_thread(this_machine, layout.node, host)
    async with AsyncExitStack() as stack:
        endpoint = settings.cri or engine_paths(layout, settings).endpoint
        cri = await stack.enter_async_context(CriClient(endpoint))
        changed = asyncio.Event()
        if not settings.cri:
            await await_engine(engine_paths(layout, settings).socket)
        client = await stack.enter_async_context(
            connected(settings, credentials, credentials.node, "moorage-node")
        )
        await hold_to_store(client, settings.node_name, layout)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        recorder = EventRecorder(client, COMPONENT, host=settings.node_name)
        tasks.create_task(recorder.run())
        about = ObjectReference(
            kind="Node", name=settings.node_name, uid=settings.node_name, api_version="v1"
        )
        events = NodeEvents(recorder, about)
        if settings.has_runtimes:
            found = await _discovery(client, cri, events, layout, settings, changed)
            tasks.create_task(found.run())
            if not settings.cri:
                tasks.create_task(follow_handlers(cri, events, found.note))
            follower = InstallationFollower(
                client,
                settings.node_name,
                layout.runtimes,
                partial(
                    installer_of,
                    node_target(layout, settings),
                    restart_command=(),
                    report=log.warning,
                ),
                recorder,
                install_package=partial(install_package, layout.root),
            )
            tasks.create_task(
                run_when_served(client, RUNTIME_INSTALLATIONS, SystemClock(), follower.run)
            )
            tasks.create_task(_announce(client, settings, credentials, found))
        else:
            if not settings.cri:
                tasks.create_task(follow_handlers(cri, events, partial(_notify, changed)))
            tasks.create_task(_announce_plain(client, settings, credentials))
        network = await _network_agent(stack, tasks, settings, credentials)
        await run_node(
            client,
            cri,
            options_of(layout, settings, credentials, host),
            network=None if network is None else PodRules(network),
            machine=machine,
            read_handlers=found.read if settings.has_runtimes else partial(read_handlers, cri),
            engine_changed=changed,
        )


async def _network_agent(
    stack: AsyncExitStack, tasks: asyncio.TaskGroup, settings: Settings, credentials: Credentials
) -> NetworkAgent | UnenforcedNetwork | None:
    """Start the agent for Services and policies; None with an external engine's network."""
    if not settings.routes_services:
        return None
    client = await stack.enter_async_context(
        connected(settings, credentials, credentials.network, "moorage-network")
    )
    try:
        agent: NetworkAgent | UnenforcedNetwork = _routing_agent(stack, client, settings)
    except NftablesError as error:
        log.warning("Services are not routed, pods with network policies wait", reason=error)
        agent = UnenforcedNetwork(client, str(error), SystemClock())
    tasks.create_task(agent.run())
    return agent


def _routing_agent(stack: AsyncExitStack, client: Client, settings: Settings) -> NetworkAgent:
    """Return the agent with the host's packet filter. Raises NftablesError."""
    kernel = Nftables()
    stack.callback(kernel.close)
    agent = NetworkAgent(
        client,
        kernel,
        cluster_id=settings.cluster_id,
        node=settings.node_name,
        networks={IPV4: (IPv4Network(settings.pod_network), IPv4Network(settings.service_network))},
        dns=ClusterDns(RUN / settings.cluster_id / DNS_SOCKET, settings.dns_address),
        listeners=[(one.address, one.port) for one in settings.listeners],
    )
    agent.check_kernel()
    events = NftablesEvents()
    stack.callback(events.close)
    loop = asyncio.get_running_loop()
    loop.add_reader(events, lambda: agent.rules_touched() if events.read() else None)
    stack.callback(loop.remove_reader, events)
    return agent


class PodRules:
    """The network agent as the node agent sees it."""

    def __init__(self, agent: NetworkAgent | UnenforcedNetwork) -> None:
        self._agent = agent

    async def admit(self, pod: Pod, addresses: Sequence[str]) -> None:
        """Put a pod's rules in force. Raises PodNetworkError."""
        meta = pod.metadata
        ports = [
            (port.protocol or "TCP", port.name, port.container_port)
            for container in (*pod.spec.containers, *sidecars(pod.spec))
            for port in container.ports
            if port.name
        ]
        try:
            await self._agent.admit(
                meta.uid,
                meta.namespace,
                meta.labels,
                addresses,
                ports,
                pod.spec.runtime_class_name or "",
            )
        except NetworkRefusedError as error:
            raise PodNetworkError(str(error)) from error


async def _discovery(
    client: Client,
    cri: CriClient,
    events: NodeEvents,
    layout: Layout,
    settings: Settings,
    changed: asyncio.Event,
) -> NodeDiscovery:
    return discovery_of(
        client,
        cri,
        events,
        await asyncio.to_thread(read_host_facts),
        layout=layout,
        settings=settings,
        handlers_changed=changed,
    )


async def _notify(changed: asyncio.Event, handlers: engine_pb.Handlers) -> None:
    """Have the node agent read the handlers."""
    del handlers
    changed.set()


class OtherStoreError(Exception):
    """The API server serves another store than the one whose pods run on this node."""


async def hold_to_store(client: Client, node: str, layout: Layout) -> None:
    """Restrict the agent's client to the store whose pods run on the node; record the first store.

    Otherwise the agent would stop all pods as orphans when the API server serves another store.
    Raises OtherStoreError.
    """
    path = layout.node_store
    served = await client.store_of(NODES, f"metadata.name={node}")
    recorded = await asyncio.to_thread(_recorded, path)
    if recorded and served != recorded:
        raise OtherStoreError(
            f"the API server serves {served}, but the pods on this node are of {recorded} "
            f"({path}): they are left alone; put the cluster's database back, or let this "
            "store's pods replace them with `moor down` and `moor up --accept-loss`"
        )
    if not recorded:
        await asyncio.to_thread(_record, path, served)
    client.require_store(served)


def _recorded(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _record(path: Path, identity: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(path, f"{identity}\n".encode())


def options_of(
    layout: Layout, settings: Settings, credentials: Credentials, host: Host
) -> NodeOptions:
    """Return the options of a cluster's node agent. Raises ConfigurationError."""
    server, configuration = credentials.node_server, _configuration(settings)
    return NodeOptions(
        name=settings.node_name,
        cluster_id=settings.cluster_id,
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
        pod_pids_limit=settings.pod_pids_limit,
        image_verification=Verification(settings.image_verification, settings.image_allowlist),
        reserved=system_reserved(host.memory_bytes, host.max_pids),
        seccomp_default=settings.seccomp_default,
        oom_score_floor=host.oom_score_floor,
        cluster_domain=CLUSTER_DOMAIN,
        cluster_dns=(settings.dns_ip,) if settings.routes_services else (),
        service_environment=_service_environment(settings),
        listeners=(*settings.listeners, *EngineProcess().listeners(settings.cri, settings.node_ip)),
        gates=settings.gates,
        eviction=configuration.eviction,
        static_pod_path=configuration.static_pod_path,
        shutdown_periods=configuration.shutdown_periods,
    )


def _service_environment(settings: Settings) -> dict[str, str]:
    """Return the API's address for pods of an external engine: nothing routes Services there."""
    if settings.routes_services:
        return {}
    return {
        "KUBERNETES_SERVICE_HOST": settings.pod_facing_address,
        "KUBERNETES_SERVICE_PORT": str(settings.api_port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(settings.api_port),
    }


def _configuration(settings: Settings) -> NodeConfiguration:
    """Return the settings of the file of --kubelet-config. Raises ConfigurationError."""
    path = settings.kubelet_configuration
    return load_configuration(Path(path)) if path else NodeConfiguration()


async def await_engine(socket_path: Path, within_s: float = _ENGINE_PATIENCE_S) -> None:
    """Wait until our own engine accepts connections, for `within_s` at most.

    Both start together, and nothing announces a socket; the socket of a killed engine exists but
    accepts none. After the deadline the node agent starts and reports that it has no engine.
    """
    try:
        async with asyncio.timeout(within_s):
            while True:
                if _accepts_connections(socket_path):
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        log.warning("engine is not available yet", socket=socket_path)


def _accepts_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


async def _announce(
    client: Client, settings: Settings, credentials: Credentials, found: NodeDiscovery
) -> None:
    """Report readiness once the node is ready and each handler that works has profile and class.

    Floors believe profiles alone, so a class without them would do for no namespace with a floor.
    """
    await _wait_node_ready(client, settings)
    try:
        async with asyncio.timeout(_PROBE_PATIENCE_S):
            await found.discovery.wait_settled()
            await _wait_profiled(client, settings.node_name, working(found.discovery.states).keys())
    except TimeoutError:
        # A slow host is no fault: each handler gets its class once its probes have run.
        log.info("not all handlers are probed and reported yet; the others are later")
    await _prepare_api(settings, credentials, with_class(found.discovery.states))
    notify_ready()


async def _announce_plain(client: Client, settings: Settings, credentials: Credentials) -> None:
    """Report readiness once the node is ready, on a node without discovery."""
    await _wait_node_ready(client, settings)
    try:
        async with connected(settings, credentials, credentials.admin, "moorage-classes") as admin:
            await create_storage_class(admin)
    except (StatusError, UnreachableError) as error:
        # The cluster is usable without it, and the next start retries.
        log.warning("the storage class cannot be created", reason=error)
    notify_ready()


async def _wait_node_ready(client: Client, settings: Settings) -> None:
    node = Informer(client, NODES, field_selector=f"metadata.name={settings.node_name}")
    await wait_until(node, lambda found: any(is_ready(one.status.conditions) for one in found))


async def _wait_profiled(client: Client, node: str, handlers: Collection[str]) -> None:
    """Block until the profiles of a node say of all these handlers that they work."""
    informer = Informer(client, RUNTIME_PROFILES, field_selector=f"spec.nodeName={node}")
    wanted = set(handlers)

    def are_profiled(profiles: Iterable[RuntimeProfile]) -> bool:
        return wanted <= {
            profile.spec.handler
            for profile in profiles
            if is_true(profile.status.conditions, WORKING)
        }

    await run_when_served(
        client, RUNTIME_PROFILES, SystemClock(), lambda: wait_until(informer, are_profiled)
    )


def working(states: Mapping[str, HandlerState]) -> dict[str, str]:
    """Return the handlers that work, with their isolation level as far as it is known."""
    return {
        name: state.probed.isolation if state.probed else ""
        for name, state in states.items()
        if state.is_working
    }


def with_class(states: Mapping[str, HandlerState]) -> dict[str, str]:
    """Return the handlers that work but those that are another one under a second name."""
    same = same_handlers(states)
    return {name: level for name, level in working(states).items() if name not in same}


async def _prepare_api(
    settings: Settings, credentials: Credentials, handlers: Mapping[str, str]
) -> None:
    """Create the classes with the administrator's certificate: a node may not."""
    try:
        async with connected(settings, credentials, credentials.admin, "moorage-classes") as admin:
            await prepare_api(admin, settings, handlers)
    except (StatusError, UnreachableError) as error:
        # The cluster is usable without them, and the next start retries.
        log.warning("default classes cannot be created", reason=error)


async def prepare_api(admin: Client, settings: Settings, handlers: Mapping[str, str]) -> None:
    """Create classes of handlers and of storage. Raises StatusError, UnreachableError."""
    if settings.routes_services:
        await apply_dns_service(admin, settings)
    if settings.is_enabled("RuntimeClass") and settings.default_classes:
        await create_classes(admin, handlers)
    await create_storage_class(admin)
    if CONTROLLERS in settings.without:
        await install_definitions(admin)


async def install_package(data_dir: Path, name: str) -> None:
    """Install a system package of the host. Raises OperationError."""
    # Packages are rarely installed, and the host's inventory is large.
    from moorage.cluster.host.packages import install_package_of_host

    await install_package_of_host(data_dir, name)
