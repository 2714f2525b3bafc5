"""Controllers and scheduler of a cluster, in one process."""

from __future__ import annotations

import asyncio

from moorage.api.clock import SystemClock
from moorage.cluster.credentials import Credentials
from moorage.cluster.layout import Layout
from moorage.cluster.parts.connection import connected
from moorage.cluster.readiness import notify_ready
from moorage.cluster.settings import Settings
from moorage.controllers import ControllerOptions, run_controllers
from moorage.scheduler import SchedulerOptions, run_scheduler


async def run(layout: Layout, settings: Settings) -> None:
    """Run controllers and scheduler until cancelled."""
    credentials = Credentials(layout)
    clock = SystemClock()
    authority = credentials.authority
    options = ControllerOptions(
        cluster_ca=authority.certificate.read_text(), cluster_ca_key=authority.key
    )
    scheduling = SchedulerOptions(filters_by_handler=settings.filters_by_handler)
    async with (
        connected(settings, credentials, credentials.controllers, "moorage-controllers") as client,
        connected(settings, credentials, credentials.scheduler, "moorage-scheduler") as other,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(run_controllers(client, options, clock))
        tasks.create_task(run_scheduler(other, scheduling, clock))
        notify_ready()
