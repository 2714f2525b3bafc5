"""Controllers and scheduler of a cluster, in one process."""

from __future__ import annotations

import asyncio

from moorage.api.clock import SystemClock
from moorage.cluster.credentials import Credentials
from moorage.cluster.layout import Layout
from moorage.cluster.parts.connection import connected
from moorage.cluster.readiness import notify_ready
from moorage.cluster.settings import CONTROLLERS, SCHEDULER, Settings
from moorage.controllers import ControllerOptions, run_controllers
from moorage.scheduler import SchedulerOptions, run_scheduler


async def run(layout: Layout, settings: Settings) -> None:
    """Run controllers and scheduler, but for those in `settings.without`, until cancelled."""
    loops = {CONTROLLERS: _controllers, SCHEDULER: _scheduler}
    async with asyncio.TaskGroup() as tasks:
        for name, loop in loops.items():
            if name not in settings.without:
                tasks.create_task(loop(Credentials(layout), settings))
        notify_ready()


async def _controllers(credentials: Credentials, settings: Settings) -> None:
    authority = credentials.authority
    options = ControllerOptions(
        cluster_ca=authority.certificate.read_text(), cluster_ca_key=authority.key
    )
    identity = credentials.controllers
    async with connected(settings, credentials, identity, "moorage-controllers") as client:
        await run_controllers(client, options, SystemClock())


async def _scheduler(credentials: Credentials, settings: Settings) -> None:
    options = SchedulerOptions(filters_by_handler=settings.filters_by_handler)
    identity = credentials.scheduler
    async with connected(settings, credentials, identity, "moorage-scheduler") as client:
        await run_scheduler(client, options, SystemClock())
