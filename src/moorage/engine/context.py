"""What sandboxes and containers are made with: the parts of an engine, put together once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from moorage.api.clock import Clock
from moorage.engine.cgroups import ContainerCgroups
from moorage.engine.drivers import Drivers
from moorage.engine.events import Events
from moorage.engine.idle_gate import IdleGate
from moorage.engine.images import ImageStore
from moorage.engine.infra import InfraProcess
from moorage.engine.inventory import Inventory, Sandbox
from moorage.engine.networks import NetworkPool
from moorage.engine.oci import CdiDirectories, HostFacts, SpecWriter
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths
from moorage.handlers.adapters import Adapter
from moorage.handlers.catalogue import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The parts. `handlers` gives the catalogue in force now; `start` runs something beside the
    calls, for as long as the engine lives.
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

    @property
    def paths(self) -> EnginePaths:
        return self.options.paths

    def now_ns(self) -> int:
        """The wall clock in nanoseconds, as the CRI counts."""
        moment = self.clock.now()
        return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000

    def adapter(self, sandbox: Sandbox) -> Adapter:
        """What drives a sandbox's tasks. Raises FailedError."""
        record = sandbox.record
        return self.drivers.adapter(record.definition, record.program)
