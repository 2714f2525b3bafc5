"""Handler discovery of a cluster's node: what the engine lists becomes what works.

engine ── WatchHandlers ──▶ known handlers ──▶ HandlerDiscovery ──▶ HandlerPublisher ──▶ API
       ── Status ─────────▶ reported handlers, for the node's status
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from moorage.api.clock import Clock, SystemClock
from moorage.api.logs import Log
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.runtime_profiles import RuntimeProgram
from moorage.client import Client
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.engine_handlers import NodeEvents, read_handlers
from moorage.cluster.images.external import ImageUnavailableError, bring_image
from moorage.cluster.layout import PROBE_RESULTS, Layout
from moorage.cluster.settings import Settings
from moorage.cri import CriClient, engine_pb, pb
from moorage.handlers.definition import DefinitionError, ShimOptions, parse_definition
from moorage.linux.cgroups import current_cgroups
from moorage.probing.cache import ProbeCache
from moorage.probing.cri_carrier import CriCarrier
from moorage.probing.cri_configuration import probe_owner
from moorage.probing.discovery import HandlerDiscovery
from moorage.probing.host import HostFacts
from moorage.probing.publishing import HandlerPublisher
from moorage.probing.states import HandlerState, KnownHandler

log = Log(__name__)


class NodeDiscovery:
    """Discovery and publication of the handlers of one node."""

    def __init__(
        self,
        client: Client,
        cri: CriClient,
        events: NodeEvents,
        host: HostFacts,
        *,
        layout: Layout,
        settings: Settings,
        handlers_changed: asyncio.Event,
        clock: Clock | None = None,
    ) -> None:
        """`handlers_changed` is set when other handlers are to be reported in the node's status."""
        clock = clock or SystemClock()
        self._cri = cri
        self._layout = layout
        self._is_own_engine = not settings.cri
        carrier = CriCarrier(
            cri,
            owner=probe_owner(settings.cluster_id, settings.node_name),
            state=layout.node / "probes" / "running",
            cgroup_parent=f"{cgroup_root(settings)}/probes",
            cgroups=current_cgroups(),
        )
        self.discovery = HandlerDiscovery(
            carrier,
            ProbeCache(PROBE_RESULTS),
            host,
            clock,
            lists_unproven=not self._is_own_engine,
        )
        self.publisher = HandlerPublisher(
            client, settings.node_name, self._states, events.record, clock
        )
        self.discovery.add_listener(self.publisher.changed)
        self.discovery.add_listener(handlers_changed.set)

    def _states(self) -> Mapping[str, HandlerState] | None:
        return self.discovery.states if self.discovery.is_listed else None

    async def run(self) -> None:
        """Probe and publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.publisher.run())
            if not self._is_own_engine:
                await self._bring_image()
            tasks.create_task(self.discovery.run())

    async def _bring_image(self) -> None:
        """Bring the probes' image to an external engine; without it nothing is probed."""
        try:
            await bring_image(self._cri, self._layout)
        except ImageUnavailableError as error:
            log.warning("handlers cannot be probed", reason=error)

    async def note(self, handlers: engine_pb.Handlers) -> None:
        """Take over what our own engine says of its handlers."""
        version = await self._cri.call(
            self._cri.runtime.Version, pb.VersionRequest(version="0.1.0")
        )
        known = await asyncio.to_thread(known_handlers, handlers)
        self.discovery.set_handlers(f"{version.runtime_name} {version.runtime_version}", known)

    async def read(self, status: pb.StatusResponse) -> tuple[NodeRuntimeHandler, ...]:
        """Return the handlers to report. Raises HandlersUnknownError, CriError."""
        listed = await read_handlers(self._cri, status)
        if not self._is_own_engine:
            version = await self._cri.call(
                self._cri.runtime.Version, pb.VersionRequest(version="0.1.0")
            )
            self.discovery.set_handlers(
                f"{version.runtime_name} {version.runtime_version}",
                [
                    KnownHandler(name=handler.name, definition=handler.name)
                    for handler in listed
                    if handler.name
                ],
            )
        return self.discovery.reported(listed)


def known_handlers(handlers: engine_pb.Handlers) -> tuple[KnownHandler, ...]:
    """Return those of our engine's handlers whose program was found. Blocks for file reads."""
    return tuple(_known(handler) for handler in handlers.handlers if handler.is_available)


def _known(handler: engine_pb.Handler) -> KnownHandler:
    program = Path(handler.program)
    defined, behind = _definition(handler.file)
    return KnownHandler(
        name=handler.name,
        definition=defined,
        programs=tuple(path for path in (program, behind) if path is not None),
        program=RuntimeProgram(name=program.name, version=handler.version, path=handler.program),
        file=handler.file,
        is_default=handler.is_default,
    )


def _definition(file: str) -> tuple[str, Path | None]:
    """Return what a file defines, and the runtime behind its shim if that is a path."""
    try:
        content = Path(file).read_bytes()
        definition = parse_definition(Path(file), content)
    except (OSError, DefinitionError) as error:
        # The engine has an earlier version in force, which is probed as it is.
        log.debug("definition of a handler cannot be read", file=file, reason=error)
        return file, None
    options = definition.options
    runtime = options.runtime if isinstance(options, ShimOptions) else None
    behind = Path(runtime) if runtime and runtime.startswith("/") else None
    # Without name and path: two names for the same are probed once.
    nameless = msgspec.structs.replace(definition, name="", path=Path(), is_default=False)
    return repr(nameless), behind
