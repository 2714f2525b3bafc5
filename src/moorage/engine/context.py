"""Engine context: the parts of an engine that every RPC needs, put together once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from moorage.api.clock import Clock
from moorage.engine.cgroups import ContainerCgroups
from moorage.engine.drivers import Drivers
from moorage.engine.events import Events
from moorage.engine.handlers.adapters import Adapter
from moorage.engine.handlers.templates import Catalogue
from moorage.engine.idle_gate import IdleGate
from moorage.engine.images.store import ImageStore
from moorage.engine.infra import InfraProcess
from moorage.engine.inventory import Container, Inventory, Sandbox
from moorage.engine.messages import container_event, sandbox_event
from moorage.engine.networks import NetworkPool
from moorage.engine.oci import CdiDirectories, HostFacts, SpecWriter
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths
from moorage.wire.cri import pb


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The parts of an engine. `handlers` returns the current catalogue; `start` runs a coroutine
    in the background until the engine stops; `wait_answered` waits for the first answer of a
    handler's program. `warned_of_guests` are the handlers whose guests were found outside of their
    pods' cgroups.
    """

    options: EngineOptions
    clock: Clock
    host: HostFacts
    specs: SpecWriter
    cdi: CdiDirectories
    inventory: Inventory
    images: ImageStore
    networks: NetworkPool
    idle_gate: IdleGate
    drivers: Drivers
    infra: InfraProcess
    cgroups: ContainerCgroups
    events: Events
    handlers: Callable[[], Catalogue]
    start: Callable[[Coroutine[Any, Any, None]], None]
    wait_answered: Callable[[str], Awaitable[None]]
    warned_of_guests: set[str] = field(default_factory=set)

    @property
    def paths(self) -> EnginePaths:
        return self.options.paths

    def now_ns(self) -> int:
        """Return the wall clock in nanoseconds since the epoch, the CRI's unit."""
        moment = self.clock.now()
        return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000

    def adapter(self, sandbox: Sandbox) -> Adapter:
        """Return the runtime adapter of a sandbox and its containers. Raises FailedError."""
        record = sandbox.record
        return self.drivers.adapter(record.definition, record.program)

    def publish_container_event(
        self, container: Container, kind: pb.ContainerEventType.ValueType
    ) -> None:
        """Publish a container's event to the streams of `GetContainerEvents`."""
        self.events.publish(container_event(container, kind, self.now_ns()))

    def publish_sandbox_event(
        self, sandbox: Sandbox, kind: pb.ContainerEventType.ValueType
    ) -> None:
        """Publish a sandbox's event to the streams of `GetContainerEvents`."""
        containers = self.inventory.containers_of(sandbox)
        self.events.publish(sandbox_event(sandbox, containers, kind, self.now_ns()))
