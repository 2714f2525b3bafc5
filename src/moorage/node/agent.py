"""Node agent assembly and main loop.

    async with Client(config, user_agent="moorage-node") as client, CriClient(endpoint) as cri:
        await run_node(client, cri, NodeOptions(name="n1"))

All parts run in one task group: the failure of one ends the agent, and its supervisor restarts it.
Cancelling ends the agent and leaves the pods running. At startup the agent takes over the running
pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from moorage.api import quantity
from moorage.api.clock import Clock, SystemClock
from moorage.api.logs import Log
from moorage.api.nodes import Node
from moorage.linux.trust import make_private
from moorage.node.cgroups.tree import CgroupTree, QosTree
from moorage.node.cgroups.values import pod_directory
from moorage.node.config.security import SecurityDefaults
from moorage.node.failures import log_failure
from moorage.node.garbage.containers import ContainerCollector, OrphanCollector
from moorage.node.garbage.eviction import PressureKeeper, PressureSources
from moorage.node.garbage.images import ImageCollector
from moorage.node.garbage.storage import StorageMeter
from moorage.node.garbage.usage import UsageWatch
from moorage.node.images.pulling import ImagePuller
from moorage.node.images.records import PullRecords
from moorage.node.log_rotation import LogKeeper
from moorage.node.machine.engine_health import EngineHealth, ReadHandlers, reported_handlers
from moorage.node.machine.lease import NodeLease
from moorage.node.machine.machine import Machine, this_machine
from moorage.node.machine.node_object import NodeObject
from moorage.node.machine.node_status import (
    NodeShutdown,
    allocatable_of,
    allocatable_pids,
    capacity_of,
)
from moorage.node.machine.pressure import Gauges, NodePressure
from moorage.node.metrics import Metrics
from moorage.node.objects import ObjectCache
from moorage.node.options import RUNTIME_CLASS, NodeOptions, ServerOptions
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pods.allocations import AllocationRecords
from moorage.node.pods.context import NodeContext
from moorage.node.pods.handler_choice import HandlerRecords, RuntimeClasses
from moorage.node.pods.hooks import Hooks
from moorage.node.pods.pod_manager import PodManager
from moorage.node.pods.pod_network import OpenNetwork, PodNetwork
from moorage.node.pods.sandboxes import SandboxMaker
from moorage.node.pods.starting import ContainerStarter
from moorage.node.pods.stopping import ContainerStopper
from moorage.node.pods.user_namespaces import UserNamespaces
from moorage.node.probes.checks import Checks, HttpClient
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.server.endpoint import serve
from moorage.node.shutdown import Logind, ShutdownKeeper
from moorage.node.static_pods import StaticPodKeeper
from moorage.node.status.writer import StatusWriter
from moorage.node.volumes.claimed import PersistentMounts
from moorage.node.volumes.pod_volumes import VolumeKeeper
from moorage.node.volumes.reclaiming import VolumeReclaimer
from moorage.node.volumes.tokens import PodTokens
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES, SERVICES
from moorage.wire.client.rest import Client
from moorage.wire.cri import CriClient, CriError

log = Log(__name__)

COMPONENT = "kubelet"
"""Event source component; `kubectl` and users look for the kubelet's name."""

_HOUSEKEEPING_S = 60.0


async def run_node(
    client: Client,
    cri: CriClient,
    options: NodeOptions,
    *,
    clock: Clock | None = None,
    machine: Machine | None = None,
    read_handlers: ReadHandlers = reported_handlers,
    engine_changed: asyncio.Event | None = None,
    network: PodNetwork | None = None,
) -> None:
    """Run the agent of one node until cancelled; its end never affects running pods.

    Set `engine_changed` to have the engine checked before the next periodic check. `network` puts
    the rules of pods in force, none by default.

    Raises OptionsError before anything is started when the options are invalid, or when the engine
    does not match them; OSError when the HTTPS port is in use.
    """
    options.check()
    clock = clock or SystemClock()
    for directory in (options.root_dir, options.root_dir / "pods", options.pod_logs_dir):
        await asyncio.to_thread(make_private, directory)
    if machine is None:
        machine = await asyncio.to_thread(this_machine, options.root_dir)
    async with HttpClient() as http:
        agent = Agent(
            client,
            cri,
            options,
            clock,
            machine,
            http,
            read_handlers,
            engine_changed,
            network=network,
        )
        await agent.run()


Keeper = (
    QosTree
    | LogKeeper
    | ContainerCollector
    | OrphanCollector
    | ImageCollector
    | PressureKeeper
    | ShutdownKeeper
    | VolumeReclaimer
)
"""A part that keeps the node in order beside the pod workers."""


Serve = Callable[[ServerOptions, NodeContext, PodManager], Coroutine[Any, Any, None]]


class Agent:
    """The components of one agent and their wiring; `context` is what its workers share."""

    def __init__(
        self,
        client: Client,
        cri: CriClient,
        options: NodeOptions,
        clock: Clock,
        machine: Machine,
        http: HttpClient,
        read_handlers: ReadHandlers,
        engine_changed: asyncio.Event | None,
        serve: Serve = serve,
        network: PodNetwork | None = None,
    ) -> None:
        self._client = client
        self._serve = serve
        self._network = network or OpenNetwork()
        self._options = options
        self._clock = clock
        self._machine = machine
        facts = machine.facts
        self._host_ips = (options.node_ip or facts.address,)
        self._capacity = capacity_of(facts, options.max_pods)
        self._pods_limits = allocatable_of(self._capacity, options.reserved)
        self._allocatable = allocatable_of(self._capacity, options.reserved, options.eviction)
        self._pressure = NodePressure()
        self._shutdown = NodeShutdown()
        self._metrics = Metrics()
        cri.on_call = self._metrics.count_call
        self._engine = Engine(cri)
        self._observer = Observer(self._engine, clock, period_s=options.relist_period_s)
        self._health = EngineHealth(
            self._engine,
            clock,
            period_s=options.engine_check_period_s,
            cgroup_driver=options.cgroup_driver,
            read_handlers=read_handlers,
            changed=engine_changed,
        )
        self._recorder = EventRecorder(client, COMPONENT, host=options.name, clock=clock)
        mine = f"spec.nodeName={options.name}"
        self._pods = Informer(client, PODS, field_selector=mine, clock=clock)
        self._classes = Informer(client, RUNTIME_CLASSES, clock=clock)
        self._services = Informer(client, SERVICES, clock=clock)
        self._nodes = Informer(
            client, NODES, field_selector=f"metadata.name={options.name}", clock=clock
        )
        self.objects = ObjectCache(client, clock)
        self.node = NodeObject(
            client=client,
            engine=self._engine,
            health=self._health,
            recorder=self._recorder,
            clock=clock,
            options=options,
            facts=facts,
            addresses=self._host_ips,
            capacity=self._capacity,
            allocatable=self._allocatable,
            pressure=self._pressure,
            shutdown=self._shutdown,
        )
        self._lease = NodeLease(
            client, self.node, clock, name=options.name, duration_s=options.lease_duration_s
        )
        paths = NodePaths(options.root_dir, options.pod_logs_dir)
        self.pull_records = PullRecords(paths.image_records, clock)
        self.context = self._make_context(http)
        self._pod_manager = PodManager(self.context, self._pods, self.node)
        self._images = ImageCollector(
            self._engine, options.image_garbage, clock, self.context.images.tidy
        )
        self._containers = ContainerCollector(
            engine=self._engine,
            observer=self._observer,
            logs=self.context.logs,
            paths=paths,
            options=options.container_garbage,
            clock=clock,
            workers=lambda: self._pod_manager.uids,
            ended=lambda: {worker.uid for worker in self._pod_manager if not worker.is_active},
        )
        self._qos_tree = QosTree(
            self.context.cgroups,
            clock,
            allocatable=self._pods_limits,
            pids_limit=allocatable_pids(facts.max_pids, options.reserved),
            pods=lambda: [worker.pod for worker in self._pod_manager if worker.is_active],
        )
        self._pressure_keeper = self._make_pressure_keeper()

    async def run(self) -> None:
        await self._qos_tree.prepare()
        # The first status, and admission of the first pods, must know of a shortage.
        with log_failure("looking for node pressure"):
            await self._pressure_keeper.look()
        self._nodes.add_handler(self.see_node)
        self._pod_manager.add_listener(self._qos_tree.pods_changed)
        async with asyncio.TaskGroup() as tasks:
            for part in (
                self._recorder,
                self._health,
                self._observer,
                self._pods,
                self._classes,
                self._services,
                self.node,
                self._lease,
            ):
                tasks.create_task(part.run())
            server = self._options.server
            if server is not None:
                tasks.create_task(self._serve(server, self.context, self._pod_manager))
            await self._observer.wait_listed()
            await self.recover_pulls()
            await self._pods.wait_synced()
            await self.node.wait_registered()
            static_pods = self._static_pod_keeper()
            if static_pods is not None:
                # Before anything takes what runs of them for orphans.
                with log_failure("reading static pods"):
                    await static_pods.load()
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._pod_manager.run())
            if static_pods is not None:
                tasks.create_task(static_pods.run())
            for keeper in self.keepers():
                tasks.create_task(keeper.run())
            tasks.create_task(self.housekeep())

    async def recover_pulls(self) -> None:
        """Load the pull records and settle earlier pulls, before any pod starts. Raises OSError."""
        await asyncio.to_thread(self.pull_records.load)
        try:
            await self.context.images.recover()
        except CriError as error:
            # The intents remain, and the next image garbage collection settles them.
            log.warning("earlier pulls cannot be settled yet", error=error)

    def see_node(self, before: Node | None, after: Node | None) -> None:
        """Take over what the API shows of the node, as the node's informer calls it."""
        del before
        if after is not None:
            self.node.seen(after)

    def _node_labels(self) -> Mapping[str, str]:
        node = self.node.node
        return {} if node is None else node.metadata.labels

    async def housekeep(self) -> None:
        """Forget objects that no pod uses any more, until cancelled."""
        while True:
            await self._clock.sleep(_HOUSEKEEPING_S)
            self.objects.forget_unused()

    def keepers(self) -> tuple[Keeper, ...]:
        """Return the node's maintenance tasks, which run beside the pod workers."""
        context, options = self.context, self._options
        return (
            self._qos_tree,
            context.logs,
            self._containers,
            OrphanCollector(
                owner=options.owner,
                node_name=options.name,
                engine=self._engine,
                observer=self._observer,
                stopper=context.stopper,
                volumes=context.volumes,
                cgroups=context.cgroups,
                logs=context.logs,
                paths=context.paths,
                clock=self._clock,
                workers=lambda: self._pod_manager.uids,
            ),
            self._images,
            VolumeReclaimer(
                self._client,
                self._recorder,
                PersistentMounts(self._machine.mounter, context.paths),
                self._clock,
                node_name=options.name,
            ),
            self._pressure_keeper,
            *self._shutdown_keepers(),
        )

    def _shutdown_keepers(self) -> tuple[ShutdownKeeper, ...]:
        if not self._options.shutdown_periods:
            return ()
        keeper = ShutdownKeeper(
            periods=self._options.shutdown_periods,
            logind=Logind(self._clock),
            shutdown=self._shutdown,
            workers=lambda: self._pod_manager,
            report=self.node.report_shutdown,
            metrics=self._metrics,
            record=self.context.paths.shutdown_record,
            clock=self._clock,
        )
        return (keeper,)

    def _static_pod_keeper(self) -> StaticPodKeeper | None:
        directory = self._options.static_pod_path
        if directory is None:
            return None
        return StaticPodKeeper(
            directory=directory,
            node_name=self._options.name,
            client=self._client,
            pods=self._pods,
            pod_manager=self._pod_manager,
            writer=self.context.writer,
            node=lambda: self.node.node,
            clock=self._clock,
        )

    def _make_pressure_keeper(self) -> PressureKeeper:
        context, options = self.context, self._options
        meter = StorageMeter(self._engine, self._observer, context.paths)
        memory = quantity.parse(self._pods_limits.get("memory", "0"))
        return PressureKeeper(
            options=options.eviction,
            sources=PressureSources(
                gauges=Gauges(
                    disk=options.root_dir,
                    tree=context.cgroups,
                    max_pids=self._machine.facts.max_pids,
                    pods_memory_bytes=memory.value,
                ),
                engine=self._engine,
                meter=meter,
                limits=UsageWatch(lambda: self._pod_manager, meter, self._observer, self._metrics),
                containers=self._containers,
                images=self._images,
            ),
            pressure=self._pressure,
            workers=lambda: self._pod_manager,
            report=self.node.report_threshold,
            metrics=self._metrics,
            clock=self._clock,
        )

    def _make_context(self, http: HttpClient) -> NodeContext:
        options, clock, engine = self._options, self._clock, self._engine
        paths = NodePaths(options.root_dir, options.pod_logs_dir)
        events = PodEvents(self._recorder)
        hooks = Hooks(engine, http, clock)
        user_namespaces = UserNamespaces(
            paths, max_pods=options.max_pods, register=options.id_register
        )
        images = ImagePuller(
            engine,
            events,
            clock,
            parallel_pulls=options.parallel_pulls,
            records=self.pull_records,
            verification=options.image_verification,
        )
        cgroups = CgroupTree(self._machine.cgroups, options.cgroup_root)
        classes = RuntimeClasses(
            self._client,
            self._classes,
            HandlerRecords(paths),
            is_enabled=options.is_enabled(RUNTIME_CLASS),
        )
        volumes = VolumeKeeper(
            objects=self.objects,
            tokens=PodTokens(self._client, clock),
            mounter=self._machine.mounter,
            paths=paths,
            clock=clock,
            refresh_s=options.refresh_period_s,
            node_labels=self._node_labels,
        )
        sandboxes = SandboxMaker(
            engine=engine,
            observer=self._observer,
            classes=classes,
            handlers=lambda: self._health.handlers,
            user_namespaces=user_namespaces,
            events=events,
            metrics=self._metrics,
            clock=clock,
            options=options,
            paths=paths,
            cgroup_parent=lambda pod: cgroups.path(pod_directory(pod)),
            cgroups=cgroups.cgroups,
        )
        starter = ContainerStarter(
            engine=engine,
            observer=self._observer,
            images=images,
            objects=self.objects,
            services=self._services,
            hooks=hooks,
            events=events,
            metrics=self._metrics,
            mounter=self._machine.mounter,
            user_namespaces=user_namespaces,
            clock=clock,
            options=options,
            paths=paths,
            security=SecurityDefaults(
                seccomp_dir=options.seccomp_dir or options.root_dir / "seccomp",
                has_seccomp_by_default=options.seccomp_default,
                masked_paths=self._machine.facts.thermal_paths,
            ),
            memory_capacity_bytes=self._machine.facts.memory_bytes,
        )
        stopper = ContainerStopper(
            engine=engine, observer=self._observer, hooks=hooks, events=events, clock=clock
        )
        logs = LogKeeper(
            engine=engine,
            observer=self._observer,
            paths=paths,
            links=options.container_logs_dir,
            options=options.log_rotation,
            clock=clock,
        )
        return NodeContext(
            options=options,
            paths=paths,
            clock=clock,
            client=self._client,
            engine=engine,
            observer=self._observer,
            health=self._health,
            classes=classes,
            cgroups=cgroups,
            allocations=AllocationRecords(paths),
            volumes=volumes,
            images=images,
            sandboxes=sandboxes,
            network=self._network,
            starter=starter,
            stopper=stopper,
            checks=Checks(engine, http),
            events=events,
            metrics=self._metrics,
            logs=logs,
            writer=StatusWriter(self._client, clock),
            host_ips=self._host_ips,
            allocatable=lambda: self._allocatable,
            pressure=self._pressure,
            shutdown=self._shutdown,
        )
