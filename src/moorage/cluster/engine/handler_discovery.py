"""Handler discovery of a node: what its engine lists becomes what works.

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
from moorage.api.runtime_group import TRIAL_HANDLER, RuntimeProgram
from moorage.cluster.engine.handlers import NodeEvents, read_handlers
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.engine.programs import EnginePrograms
from moorage.cluster.layout import PROBE_RESULTS, Layout
from moorage.cluster.settings import Settings
from moorage.engine.handlers.definition import DefinitionError, ShimOptions, parse_definition
from moorage.linux.cgroups import current_cgroups
from moorage.runtimes.probing.cache import ProbeCache
from moorage.runtimes.probing.carrier import ProbeCarrier
from moorage.runtimes.probing.cri_carrier import CriCarrier
from moorage.runtimes.probing.cri_configuration import probe_owner
from moorage.runtimes.probing.discovery import HandlerDiscovery
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.publishing import HandlerPublisher
from moorage.runtimes.probing.running import WORKING_DEADLINE_S
from moorage.wire.client.rest import Client
from moorage.wire.cri import CriClient, engine_pb, pb

log = Log(__name__)


class DiscoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is particular to a node.

    `is_own_engine` is of Moorage's engine, which reports changes of its handlers. `image_layout`
    is where the probes' image is built that is brought to the engine; None where it is there.
    Without `writes_conditions` the node's status is its kubelet's alone. A handler whose first
    container has not ended after `working_deadline_s` counts as broken. `results` is the directory
    of what was found, which later processes need not find again. `sees_host` says that programs of
    the host are at their paths here, which is not so in a container.
    """

    is_own_engine: bool
    image_layout: Layout | None = None
    writes_conditions: bool = True
    working_deadline_s: float = WORKING_DEADLINE_S
    results: Path = PROBE_RESULTS
    sees_host: bool = True


class NodeDiscovery:
    """Discovery and publication of the handlers of one node."""

    def __init__(
        self,
        client: Client,
        cri: CriClient,
        events: NodeEvents,
        host: HostFacts,
        *,
        node: str,
        carrier: ProbeCarrier,
        options: DiscoveryOptions,
        clock: Clock | None = None,
    ) -> None:
        """`carrier` runs the probes, `options` say what is particular to the node."""
        clock = clock or SystemClock()
        self._cri = cri
        self._options = options
        self._programs = EnginePrograms(cri, clock, sees_host=options.sees_host)
        self.discovery = HandlerDiscovery(
            carrier,
            ProbeCache(options.results),
            host,
            clock,
            lists_unproven=not options.is_own_engine,
            working_deadline_s=options.working_deadline_s,
        )
        self.publisher = HandlerPublisher(
            client,
            node,
            self._states,
            events.record,
            clock,
            writes_conditions=options.writes_conditions,
        )
        self.discovery.add_listener(self.publisher.changed)

    def _states(self) -> Mapping[str, HandlerState] | None:
        return self.discovery.states if self.discovery.is_listed else None

    async def run(self) -> None:
        """Probe and publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.publisher.run())
            if self._options.image_layout is not None:
                await self._bring_image(self._options.image_layout)
            tasks.create_task(self.discovery.run())

    async def _bring_image(self, layout: Layout) -> None:
        """Bring the probes' image to an external engine; without it nothing is probed."""
        # Agents in pods have the image already, and 5,000 of them less to load.
        from moorage.cluster.images.external import ImageUnavailableError, bring_image

        try:
            await bring_image(self._cri, layout)
        except ImageUnavailableError as error:
            log.warning("handlers cannot be probed", reason=error)

    async def wait_listed(self) -> None:
        """Return once the engine has listed its handlers."""
        await self.discovery.wait_listed()

    async def note(self, handlers: engine_pb.Handlers) -> None:
        """Take over what our own engine says of its handlers."""
        version = await self._cri.call(
            self._cri.runtime.Version, pb.VersionRequest(version="0.1.0")
        )
        known = await asyncio.to_thread(known_handlers, handlers)
        self.discovery.set_handlers(f"{version.runtime_name} {version.runtime_version}", known)

    async def read(self, status: pb.StatusResponse) -> tuple[NodeRuntimeHandler, ...]:
        """Return the handlers to report. Raises HandlersUnknownError, CriError."""
        listed = tuple(
            one for one in await read_handlers(self._cri, status) if one.name != TRIAL_HANDLER
        )
        if not self._options.is_own_engine:
            version = await self._cri.call(
                self._cri.runtime.Version, pb.VersionRequest(version="0.1.0")
            )
            self.discovery.set_handlers(
                f"{version.runtime_name} {version.runtime_version}",
                await self._programs.known([handler.name for handler in listed if handler.name]),
            )
        return self.discovery.reported(listed)


def discovery_of(
    client: Client,
    cri: CriClient,
    events: NodeEvents,
    host: HostFacts,
    *,
    layout: Layout,
    settings: Settings,
    handlers_changed: asyncio.Event,
) -> NodeDiscovery:
    """Return the discovery of a cluster's node, whose probes the engine itself runs.

    `handlers_changed` is set when other handlers are to be reported in the node's status.
    """
    carrier = CriCarrier(
        cri,
        owner=probe_owner(settings.cluster_id, settings.node_name),
        state=layout.node / "probes" / "running",
        cgroup_parent=f"{cgroup_root(settings)}/probes",
        cgroups=current_cgroups(),
    )
    options = DiscoveryOptions(
        is_own_engine=not settings.cri, image_layout=layout if settings.cri else None
    )
    found = NodeDiscovery(
        client, cri, events, host, node=settings.node_name, carrier=carrier, options=options
    )
    found.discovery.add_listener(handlers_changed.set)
    return found


def known_handlers(handlers: engine_pb.Handlers) -> tuple[KnownHandler, ...]:
    """Return those of our engine's handlers whose program was found. Blocks for file reads."""
    return tuple(_known(handler) for handler in handlers.handlers if handler.is_available)


def _known(handler: engine_pb.Handler) -> KnownHandler:
    program = Path(handler.program)
    defined, files, start_deadline_s = _definition(handler.file)
    return KnownHandler(
        name=handler.name,
        definition=defined,
        programs=(program, *files),
        program=RuntimeProgram(name=program.name, version=handler.version, path=handler.program),
        file=handler.file,
        is_default=handler.is_default,
        start_deadline_s=start_deadline_s,
    )


def _definition(file: str) -> tuple[str, tuple[Path, ...], float]:
    """Return a file's definition, its deadline, and the files that it runs and reads.

    These are the runtime behind a shim, if that is a path, and the shim's configuration: a probe's
    verdict depends on both.
    """
    try:
        content = Path(file).read_bytes()
        definition = parse_definition(Path(file), content)
    except (OSError, DefinitionError) as error:
        # The engine has an earlier version in force, which is probed as it is.
        log.debug("definition of a handler cannot be read", file=file, reason=error)
        return file, (), 0.0
    options = definition.options
    runtime = options.runtime if isinstance(options, ShimOptions) else None
    files = [Path(runtime)] if runtime and runtime.startswith("/") else []
    if isinstance(options, ShimOptions) and options.config_path is not None:
        files.append(Path(options.config_path))
    # Without name and path: two names for the same are probed once.
    nameless = msgspec.structs.replace(definition, name="", path=Path(), is_default=False)
    deadline_s = options.start_deadline_s if isinstance(options, ShimOptions) else 0.0
    return repr(nameless), tuple(files), deadline_s
