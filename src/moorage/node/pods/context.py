"""Node context: the agent's components that pod workers use, created once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moorage.api.clock import Clock
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.images.pulling import ImagePuller
from moorage.node.log_rotation import LogKeeper
from moorage.node.machine.engine_health import EngineHealth
from moorage.node.machine.node_status import NodeShutdown
from moorage.node.machine.pressure import NodePressure
from moorage.node.metrics import Metrics
from moorage.node.options import NodeOptions
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pods.allocations import AllocationRecords
from moorage.node.pods.handler_choice import RuntimeClasses
from moorage.node.pods.pod_network import PodNetwork
from moorage.node.pods.sandboxes import SandboxMaker
from moorage.node.pods.starting import ContainerStarter
from moorage.node.pods.stopping import ContainerStopper
from moorage.node.probes.checks import Checks
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.status.writer import StatusWriter
from moorage.node.volumes.pod_volumes import VolumeKeeper
from moorage.wire.client.rest import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """Components of the agent. `allocatable` returns the node's current allocatable resources."""

    options: NodeOptions
    paths: NodePaths
    clock: Clock
    client: Client
    engine: Engine
    observer: Observer
    health: EngineHealth
    classes: RuntimeClasses
    cgroups: CgroupTree
    allocations: AllocationRecords
    volumes: VolumeKeeper
    images: ImagePuller
    sandboxes: SandboxMaker
    network: PodNetwork
    starter: ContainerStarter
    stopper: ContainerStopper
    checks: Checks
    events: PodEvents
    metrics: Metrics
    logs: LogKeeper
    writer: StatusWriter
    host_ips: tuple[str, ...]
    allocatable: Callable[[], Mapping[str, str]]
    pressure: NodePressure
    shutdown: NodeShutdown
