"""Container engine: puts the parts together, recovers earlier pods, serves the CRI.

handlers ─┐
images ───┤
networks ─┼─▶ context ─▶ service ─▶ gRPC socket
reaper ───┘                 └─▶ streams (exec, attach, port-forward)
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import moorage
from moorage.api.clock import Clock, SystemClock
from moorage.api.logs import Log
from moorage.engine.background import Background
from moorage.engine.cgroups import ContainerCgroups
from moorage.engine.containers.log import LogRateLimiter
from moorage.engine.context import EngineContext
from moorage.engine.drivers import Drivers
from moorage.engine.errors import EngineError, FailedError
from moorage.engine.events import Events
from moorage.engine.handlers.templates import Catalogue as HandlerCatalogue
from moorage.engine.handlers.watching import HandlerDirectory
from moorage.engine.idle_gate import IdleGate
from moorage.engine.images.service import ImageServicer
from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.engine.infra import InfraProcess
from moorage.engine.inventory import Inventory, Sandbox
from moorage.engine.networks import NetworkPool, Plugins, read_conflist
from moorage.engine.oci import CdiDirectories, SpecWriter, look_at_host
from moorage.engine.options import EngineOptions
from moorage.engine.recovery import recover
from moorage.engine.sandboxes.run import remove_pod_sandbox
from moorage.engine.service import serve
from moorage.engine.service.containers import ContainerServicer, SandboxServicer
from moorage.engine.service.extension import ExtensionServicer
from moorage.engine.service.statistics import StatisticsServicer
from moorage.engine.service.status import StatusServicer
from moorage.engine.service.streams import EngineTarget, StreamServicer
from moorage.engine.stats import Statistics
from moorage.engine.streams import StreamServer
from moorage.linux.host import Host, read_host
from moorage.linux.reaper import Reaper
from moorage.linux.trees import make_directories
from moorage.linux.trust import PASSABLE, PRIVATE_FILE, distrust

log = Log(__name__)

_MAX_CONCURRENT_REMOVALS = 8
_IDLE_S = 0.05
_REMOVE_DEADLINE_S = 60.0


class EngineBusyError(FailedError):
    """Another engine runs on the same directories."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine, after recovery. `host` is as it was at the engine's start."""

    context: EngineContext
    handlers: HandlerDirectory
    host: Host

    @property
    def images(self) -> ImageStore:
        return self.context.images

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the CRI on the engine's socket while the block lasts. Raises OSError."""
        context, options, cgroups = self.context, self.context.options, self.host.cgroups
        async with StreamServer(
            EngineTarget(context), options.stream_address, context.clock, port=options.stream_port
        ) as streams:
            servicers = (
                StatusServicer(context),
                SandboxServicer(context),
                ContainerServicer(context),
                StreamServicer(context, streams),
                StatisticsServicer(context, Statistics(cgroups, context.clock, context.start)),
                ExtensionServicer(self.images, self.handlers),
                ImageServicer(
                    self.images,
                    lambda: context.handlers().handlers,
                    lambda name: _platform(context.handlers(), name),
                ),
            )
            limiter = LogRateLimiter(context.inventory, context.paths, cgroups, context.clock)
            context.start(limiter.run())
            if options.spare_networks > 0:
                context.start(context.networks.run())
            async with serve(options.socket, servicers):
                log.info("engine ready", version=moorage.__version__, socket=options.socket)
                yield

    async def remove_all(self) -> None:
        """Remove every sandbox and release the warm networks. Failures are logged."""
        pending = list(self.context.inventory.sandboxes)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_MAX_CONCURRENT_REMOVALS, len(pending))):
                tasks.create_task(self._remove_pending(pending))
        await self.context.networks.drain()

    async def _remove_pending(self, pending: list[Sandbox]) -> None:
        while pending:
            sandbox = pending.pop()
            try:
                async with asyncio.timeout(_REMOVE_DEADLINE_S):
                    await remove_pod_sandbox(self.context, sandbox)
            except (EngineError, ExceptionGroup, OSError) as error:
                log.warning("sandbox removal failed", sandbox=sandbox.id, reason=error)


@asynccontextmanager
async def running(options: EngineOptions, clock: Clock | None = None) -> AsyncIterator[Engine]:
    """Run an engine on its directories while the block lasts; containers keep running after it.

    Raises EngineBusyError, OSError, EngineError.
    """
    clock = clock or SystemClock()
    # Before the exit stack: a task group in it would wrap an error in an ExceptionGroup.
    conmon, skopeo = (_program(name, options) for name in ("conmon", "skopeo"))
    host = options.host or read_host()
    options.paths.prepare()
    make_directories(options.socket.parent, PASSABLE)
    async with AsyncExitStack() as stack:
        stack.enter_context(_locked(options))
        reaper = await stack.enter_async_context(Reaper())
        handlers = await stack.enter_async_context(
            HandlerDirectory(
                (*options.handler_directories, options.paths.handlers),
                path=options.search_path,
                generate_into=options.paths.handlers,
            )
        )
        images = await stack.enter_async_context(_images(options, skopeo))
        drivers = await stack.enter_async_context(
            Drivers(options.paths, conmon, reaper, host.cgroups)
        )
        background = await stack.enter_async_context(Background())
        context = _context(options, clock, host, handlers, images, drivers, background)
        await recover(context)
        yield Engine(context, handlers, host)


def _context(
    options: EngineOptions,
    clock: Clock,
    host: Host,
    handlers: HandlerDirectory,
    images: ImageStore,
    drivers: Drivers,
    background: Background,
) -> EngineContext:
    paths = options.paths
    facts = look_at_host(host)
    idle_gate = IdleGate(clock)
    return EngineContext(
        options=options,
        clock=clock,
        host=facts,
        specs=SpecWriter(facts),
        cdi=CdiDirectories(),
        inventory=Inventory(paths),
        images=images,
        networks=NetworkPool(
            paths.namespaces,
            Plugins(options.cni_programs),
            lambda: read_conflist(options.cni_configurations),
            clock,
            size=options.spare_networks,
            wait_idle=partial(idle_gate.wait, _IDLE_S),
        ),
        idle_gate=idle_gate,
        drivers=drivers,
        infra=InfraProcess(paths.data / "holder", options.search_path),
        cgroups=ContainerCgroups(host.cgroups),
        events=Events(),
        handlers=lambda: handlers.catalogue,
        wait_answered=handlers.wait_answered,
        start=background.start,
    )


def _program(name: str, options: EngineOptions) -> Path | None:
    """Return a program on the search path, None if absent. Raises FailedError if untrusted."""
    path = shutil.which(name, path=options.search_path)
    if path is None:
        return None
    untrusted = distrust(Path(path))
    if untrusted is not None:
        raise FailedError(f"refusing to run {name}: {untrusted}")
    return Path(path)


def _images(options: EngineOptions, skopeo: Path | None) -> ImageStore:
    return ImageStore(
        ImagePaths(options.paths.images, options.paths.run / "i"),
        skopeo=skopeo or Path("skopeo"),
        mirrors=options.registry_mirrors,
        pinned=options.pinned_images,
        limits=options.image_limits,
    )


@contextmanager
def _locked(options: EngineOptions) -> Iterator[None]:
    """Hold the engine's exclusive flock. Raises EngineBusyError if another engine holds it."""
    # Private: any process that can open the file could hold the lock.
    descriptor = os.open(options.paths.lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    with os.fdopen(descriptor, "a") as lock:
        os.fchmod(descriptor, PRIVATE_FILE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineBusyError(
                f"another engine is running on {options.paths.run}; stop it first"
            ) from None
        yield


def _platform(catalogue: HandlerCatalogue, handler: str) -> str:
    """Return the platform of a handler's images, empty for the host's."""
    offered = catalogue.handlers.get(handler)
    return (offered.definition.platform or "") if offered is not None else ""
