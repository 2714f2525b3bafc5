"""Container engine health and runtime handlers.

Queries the engine every few seconds; several times a second while it does not answer, so that the
node becomes Ready as soon as its engine starts. Source: CRI Status, kubelet `updateRuntimeUp` and
`runtimeState`, with their messages; KEP-3857 and KEP-127 for handlers' features.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.api.clock import Clock, sleep_unless_set
from moorage.api.logs import Log
from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.node.options import CGROUPFS, SYSTEMD, OptionsError
from moorage.node.runtime.engine import Engine
from moorage.wire.cri import CriError, pb

log = Log(__name__)

_DOWN_PERIOD_S = 0.2
_FRESH = "container runtime status check may not have completed yet"

Handlers = tuple[NodeRuntimeHandler, ...]
ReadHandlers = Callable[[pb.StatusResponse], Awaitable[Handlers]]
"""Returns an engine's handlers from its status, in the way that this engine version reports
them.
"""

_DRIVERS = {pb.SYSTEMD: SYSTEMD, pb.CGROUPFS: CGROUPFS}


async def reported_handlers(status: pb.StatusResponse) -> Handlers:
    """Return the handlers that a status lists; engines before CRI 1.30 list none."""
    return tuple(
        NodeRuntimeHandler(
            name=handler.name,
            features=NodeRuntimeHandlerFeatures(
                recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                user_namespaces=handler.features.user_namespaces,
            ),
        )
        for handler in status.runtime_handlers
    )


def in_order(handlers: Handlers) -> Handlers:
    """Sort handlers by name: an engine lists a set, and CRI-O in a different order each time."""
    return tuple(sorted(handlers, key=lambda handler: handler.name))


class EngineHealth:
    """The engine's last known state. Listeners are called after every change."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        period_s: float,
        cgroup_driver: str,
        read_handlers: ReadHandlers = reported_handlers,
        changed: asyncio.Event | None = None,
    ) -> None:
        """Set `changed` to have the engine checked before the next periodic check."""
        self._changed = changed or asyncio.Event()
        self._engine = engine
        self._clock = clock
        self._period_s = period_s
        self._cgroup_driver = cgroup_driver
        self._read_handlers = read_handlers
        self._listeners: list[Callable[[], None]] = []
        self.engine_name = "unknown"
        self.engine_version = "Unknown"
        self.handlers: Handlers = ()
        self.has_groups_policy: bool | None = None
        self.runtime_problem: str | None = _FRESH
        self.network_problem: str | None = None
        self._asked = asyncio.Event()

    async def wait_checked(self) -> None:
        """Block until the first check of the engine has completed, whatever its result."""
        await self._asked.wait()

    @property
    def is_ready(self) -> bool:
        return self.runtime_problem is None and self.network_problem is None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a function to call after every change. It must not block."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Check periodically until cancelled.

        Raises OptionsError for an engine that does not match the options.
        """
        is_known = False
        while True:
            try:
                if not is_known:
                    await self._identify()
                    is_known = True
                await self._check()
            except CriError as error:
                is_known = False
                self._note_down(error)
                self._asked.set()
                await self._clock.sleep(_DOWN_PERIOD_S)
                continue
            self._asked.set()
            await sleep_unless_set(self._clock, self._period_s, self._changed)
            self._changed.clear()

    async def _identify(self) -> None:
        version = await self._engine.version()
        driver = await self._engine.cgroup_driver()
        if driver is not None and _DRIVERS[driver] != self._cgroup_driver:
            raise OptionsError(
                f"engine {version.name} uses the cgroup driver {_DRIVERS[driver]!r}, this node "
                f"agent {self._cgroup_driver!r}: set both to {CGROUPFS!r} (containerd: "
                "SystemdCgroup = false in the handler's options; CRI-O: cgroup_manager = "
                '"cgroupfs" and conmon_cgroup = "pod")'
            )
        if (version.name, version.version) != (self.engine_name, self.engine_version):
            log.info("engine found", engine=version.name, version=version.version)
        self.engine_name, self.engine_version = version.name, version.version

    async def _check(self) -> None:
        status = await self._engine.status()
        before = self._state()
        conditions = {condition.type: condition for condition in status.status.conditions}
        self.runtime_problem = _problem(
            conditions.get("RuntimeReady"), "container runtime not ready"
        )
        self.network_problem = _problem(
            conditions.get("NetworkReady"), "container runtime network not ready"
        )
        if self.runtime_problem is None:
            self.handlers = in_order(await self._read_handlers(status))
            self.has_groups_policy = (
                status.features.supplemental_groups_policy if status.HasField("features") else None
            )
        self._announce(before)

    def _note_down(self, error: CriError) -> None:
        before = self._state()
        self.runtime_problem = f"container runtime is down: {error.sentence}"
        if self._state() != before:
            log.warning("engine does not answer", error=error)
        self._announce(before)

    def _announce(self, before: object) -> None:
        if self._state() != before:
            for listener in self._listeners:
                listener()

    def _state(self) -> tuple[object, ...]:
        return (
            self.engine_name,
            self.engine_version,
            self.handlers,
            self.has_groups_policy,
            self.runtime_problem,
            self.network_problem,
        )


def _problem(condition: pb.RuntimeCondition | None, what: str) -> str | None:
    if condition is None:
        return f"{what}: the engine does not report this condition"
    if condition.status:
        return None
    return f"{what}: {condition.type}=false reason:{condition.reason} message:{condition.message}"
