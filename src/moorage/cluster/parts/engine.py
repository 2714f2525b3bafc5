"""The container engine of a cluster, unless it uses another's."""

from __future__ import annotations

import asyncio

from moorage.api.logs import Log
from moorage.cluster.engine import EnginePlan, plan_engine, prepare_host
from moorage.cluster.images import PAUSE, NoPauseError, catalogue, import_images
from moorage.cluster.layout import Layout
from moorage.cluster.network import set_up
from moorage.cluster.notify import notify_ready
from moorage.cluster.settings import Settings
from moorage.engine import Engine, running

log = Log(__name__)


async def run(layout: Layout, settings: Settings) -> None:
    """Be the cluster's engine until cancelled; containers go on after that."""
    host = await prepare_host(layout.root)
    plan = plan_engine(layout, settings, host)
    network = await set_up(plan.network, host, plan.paths.cni)
    if network.complaint:
        log.warning("pods do not reach the outside", reason=network.complaint)
    async with running(plan.options) as engine:
        # First, so that no pod can ask for an image that is about to come.
        await _bring_images(plan, engine)
        async with engine.serving():
            notify_ready()
            await asyncio.get_running_loop().create_future()


async def _bring_images(plan: EnginePlan, engine: Engine) -> None:
    tools = plan.host.tools
    paths = {name: tools[name].path for name in ("busybox", "catatonit") if name in tools}
    try:
        images = await catalogue(paths.get("busybox"), paths.get("catatonit"))
    except NoPauseError as error:
        log.warning("there are no images of this machine's own", reason=error)
        return
    # An engine of our own needs no image to hold a pod's namespaces.
    wanted = [each for each in images if each.name != PAUSE]
    await import_images(wanted, engine.images, plan.options.paths.run / "images.tar")
