"""Controllers and scheduler of a cluster, in one process, each with its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from moorage.api.clock import SystemClock
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.client import Client
from moorage.client.backoff import Backoff
from moorage.client.rest import UnreachableError
from moorage.cluster.credentials import Credentials, Pair
from moorage.cluster.layout import Layout
from moorage.cluster.parts.connection import connected
from moorage.cluster.parts.secure_port import serve_metrics
from moorage.cluster.readiness import notify_ready
from moorage.cluster.settings import CONTROLLERS, SCHEDULER, Settings
from moorage.controllers import ControllerOptions, run_controllers
from moorage.controllers.runtimeclasses import RuntimeClassController
from moorage.custom_resources import install_definitions
from moorage.metrics import Family, QueueMetrics, counting_queues, process_families
from moorage.scheduler import SchedulerMetrics, SchedulerOptions, run_scheduler

log = Log(__name__)

_RETRY_S, _RETRY_LIMIT_S = 0.5, 30.0


async def run(layout: Layout, settings: Settings) -> None:
    """Run controllers and scheduler, but for those in `settings.without`, until cancelled.

    Ready once their clients have reached the API server.
    """
    credentials = Credentials(layout)
    parts = {
        CONTROLLERS: (credentials.controllers, "moorage-controllers", _start_controllers),
        SCHEDULER: (credentials.scheduler, "moorage-scheduler", _start_scheduler),
    }
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        clients = {
            name: await stack.enter_async_context(connected(settings, credentials, identity, agent))
            for name, (identity, agent, _) in parts.items()
            if name not in settings.without
        }
        for name, client in clients.items():
            _, _, start = parts[name]
            start(tasks, client, credentials, settings)
        if CONTROLLERS in clients:
            admin = await stack.enter_async_context(
                connected(settings, credentials, credentials.admin, "moorage-runtimes")
            )
            tasks.create_task(_start_runtimes(tasks, admin, settings))
        notify_ready()


async def _start_runtimes(tasks: asyncio.TaskGroup, admin: Client, settings: Settings) -> None:
    """Install the definitions of the group runtime.moorage.dev, then start its controllers.

    With the administrator's certificate: a controller manager may not define resources.
    """
    clock, backoff = SystemClock(), Backoff(first_s=_RETRY_S, limit_s=_RETRY_LIMIT_S)
    while True:
        try:
            await install_definitions(admin)
        except (StatusError, UnreachableError) as error:
            log.warning("definitions of runtime.moorage.dev not installed yet", reason=error)
            await clock.sleep(backoff.next_s())
        else:
            break
    if settings.is_enabled("RuntimeClass") and settings.default_classes:
        tasks.create_task(RuntimeClassController(admin, clock).run())


def _start_controllers(
    tasks: asyncio.TaskGroup, client: Client, credentials: Credentials, settings: Settings
) -> None:
    authority, queues = credentials.authority, QueueMetrics()
    options = ControllerOptions(
        cluster_ca=authority.certificate.read_text(), cluster_ca_key=authority.key
    )
    served = _Served(settings.controllers_port, credentials.controllers_server, queues.families)
    with counting_queues(queues):
        tasks.create_task(run_controllers(client, options, SystemClock()))
    tasks.create_task(_serve(served, credentials, client))


def _start_scheduler(
    tasks: asyncio.TaskGroup, client: Client, credentials: Credentials, settings: Settings
) -> None:
    options = SchedulerOptions(filters_by_handler=settings.filters_by_handler)
    metrics = SchedulerMetrics(options.name)
    served = _Served(settings.scheduler_port, credentials.scheduler_server, metrics.families)
    tasks.create_task(run_scheduler(client, options, SystemClock(), metrics=metrics))
    tasks.create_task(_serve(served, credentials, client))


@dataclass(frozen=True, slots=True)
class _Served:
    """Metrics of a part: its port, its certificate, its own families."""

    port: int
    identity: Pair
    families: Callable[[], Iterable[Family]]


async def _serve(served: _Served, credentials: Credentials, client: Client) -> None:
    """Serve a part's metrics, those of its requests and of the process, until cancelled."""
    # 0 in the settings of a cluster that an older version started.
    if not served.port:
        return

    def families() -> Iterable[Family]:
        return (*served.families(), *client.metrics.families(), *process_families())

    await serve_metrics(
        served.port, served.identity, credentials.authority, client, families, SystemClock()
    )
