"""Container engine of a cluster, as one of its parts; not started with an external engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from moorage.api.clock import SystemClock
from moorage.api.host_ports import Listener
from moorage.api.logs import Log
from moorage.cluster.engine.plan import EnginePlan, plan_engine, prepare_host
from moorage.cluster.images import PAUSE, NoPauseError, catalogue
from moorage.cluster.images.listing import import_images
from moorage.cluster.layout import Layout
from moorage.cluster.network import keep, set_up
from moorage.cluster.settings import Settings
from moorage.cluster.supervision.readiness import notify_ready
from moorage.engine.engine import running
from moorage.engine.images.store import ImageStore
from moorage.linux.nftables_events import NftablesEvents
from moorage.linux.trust import PASSABLE, make_private

log = Log(__name__)


async def run(layout: Layout, settings: Settings) -> None:
    """Run the cluster's engine until cancelled; containers keep running.

    Raises NoEngineError, NetworkError if the host lacks something that the engine needs.
    """
    host = await prepare_host(layout.root)
    plan = with_stream_port(plan_engine(layout, settings, host))
    network = await set_up(plan.network, host, plan.paths.cni)
    if network.complaint:
        log.warning("pods cannot reach external networks", reason=network.complaint)
    # Passable, since sockets and bundles are reached through it; its entries have their own modes.
    make_private(plan.paths.run, PASSABLE)
    make_private(plan.paths.leases)
    async with running(plan.options) as engine:
        # Before it serves, so that no pod requests an image that is not loaded yet.
        await bring_images(plan, engine.images)
        async with engine.serving():
            notify_ready()
            if network.complaint:
                await asyncio.get_running_loop().create_future()
            with _rules_touched() as touched:
                await keep(plan.network, host, touched, SystemClock())


@contextmanager
def _rules_touched() -> Iterator[asyncio.Event]:
    """Yield an event that is set when another program changes nftables, if the kernel says so."""
    touched = asyncio.Event()
    try:
        events = NftablesEvents()
    except OSError as error:
        log.info("changes of packet filter rules are not reported", reason=error)
        yield touched
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(events, lambda: touched.set() if events.read() else None)
    try:
        yield touched
    finally:
        loop.remove_reader(events)
        events.close()


def with_stream_port(plan: EnginePlan) -> EnginePlan:
    """Choose the port of the engine's streams before the network's rules are made.

    No pod may have it as a host port: the API server's exec and port-forward connect to it. If
    another program takes the port meanwhile, this part fails and is restarted with another port.
    """
    address = plan.options.stream_address
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    listeners = (*plan.network.listeners, Listener("engine", address, port))
    return replace(
        plan,
        network=replace(plan.network, listeners=listeners),
        options=replace(plan.options, stream_port=port),
    )


async def bring_images(plan: EnginePlan, store: ImageStore) -> None:
    """Load the images that are built from programs of this host."""
    tools = plan.host.tools
    paths = {name: tools[name].path for name in ("busybox", "catatonit") if name in tools}
    try:
        images = await catalogue(paths.get("busybox"), paths.get("catatonit"))
    except NoPauseError as error:
        log.warning("no images can be built from the programs of this host", reason=error)
        return
    # An engine of our own needs no image to hold a pod's namespaces.
    own_images = [image for image in images if image.name != PAUSE]
    await import_images(own_images, store, plan.options.paths.run / "images.tar")
