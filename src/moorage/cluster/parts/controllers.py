"""Controllers and scheduler of a cluster, in one process, each with its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from moorage.api.clock import SystemClock
from moorage.client import Client
from moorage.cluster.credentials import Credentials
from moorage.cluster.layout import Layout
from moorage.cluster.parts.connection import connected
from moorage.cluster.parts.secure_port import serve_metrics
from moorage.cluster.readiness import notify_ready
from moorage.cluster.settings import Settings
from moorage.controllers import ControllerOptions, run_controllers
from moorage.metrics import Family, QueueMetrics, counting_queues, process_families
from moorage.scheduler import SchedulerMetrics, SchedulerOptions, run_scheduler


async def run(layout: Layout, settings: Settings) -> None:
    """Run controllers and scheduler until cancelled."""
    credentials = Credentials(layout)
    clock = SystemClock()
    options = ControllerOptions(cluster_ca=credentials.authority.certificate.read_text())
    scheduling = SchedulerOptions(filters_by_handler=settings.filters_by_handler)
    queues, scheduled = QueueMetrics(), SchedulerMetrics(scheduling.name)
    async with (
        connected(settings, credentials, credentials.controllers, "moorage-controllers") as client,
        connected(settings, credentials, credentials.scheduler, "moorage-scheduler") as other,
        asyncio.TaskGroup() as tasks,
    ):
        with counting_queues(queues):
            tasks.create_task(run_controllers(client, options, clock))
        tasks.create_task(run_scheduler(other, scheduling, clock, metrics=scheduled))
        for port, identity, caller, own in (
            (settings.controllers_port, credentials.controllers_server, client, queues.families),
            (settings.scheduler_port, credentials.scheduler_server, other, scheduled.families),
        ):
            # 0 in the settings of a cluster that an older version started.
            if port:
                families = _with_process(own, caller)
                served = serve_metrics(
                    port, identity, credentials.authority, caller, families, clock
                )
                tasks.create_task(served)
        notify_ready()


def _with_process(
    own: Callable[[], Iterable[Family]], client: Client
) -> Callable[[], Iterable[Family]]:
    """Return a function that returns a part's families, its requests' and the process'."""
    return lambda: (*own(), *client.metrics.families(), *process_families())
