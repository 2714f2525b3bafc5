"""Controllers and scheduler of a cluster, in one process, each with its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from moorage.api.clock import SystemClock
from moorage.api.logs import Log
from moorage.cluster.access.credentials import Credentials, Pair
from moorage.cluster.layout import Layout
from moorage.cluster.parts.connection import connected
from moorage.cluster.parts.secure_port import serve_metrics
from moorage.cluster.settings import CONTROLLERS, SCHEDULER, Settings
from moorage.cluster.supervision.readiness import notify_ready
from moorage.controllers import ControllerOptions, OverheadMetrics, run_alone, run_controllers
from moorage.linux.listeners import is_listening
from moorage.runtimes.custom_resources import wait_installed
from moorage.scheduler import SchedulerMetrics, SchedulerOptions, run_scheduler
from moorage.wire.client.rest import Client
from moorage.wire.metrics import Family, QueueMetrics, counting_queues, process_families

log = Log(__name__)

_OWN_KINDS_S = 15.0


async def run(layout: Layout, settings: Settings) -> None:
    """Run controllers and scheduler, but for those in `settings.without`, until cancelled.

    The provisioner of local volumes and the controllers of our own group are among the controllers;
    without these they run alone. Ready once the clients have reached the API server, and it serves
    the kinds of our own group.
    """
    credentials = Credentials(layout)
    parts = {
        CONTROLLERS: (credentials.controllers, "moorage-controllers"),
        SCHEDULER: (credentials.scheduler, "moorage-scheduler"),
    }
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        clients = {
            name: await stack.enter_async_context(connected(settings, credentials, identity, agent))
            for name, (identity, agent) in parts.items()
            if name not in settings.without
        }
        # The controllers of our own group define its kinds, which a controller manager may not.
        admin = await stack.enter_async_context(
            connected(settings, credentials, credentials.admin, "moorage-runtimes")
        )
        if CONTROLLERS in clients:
            _start_controllers(tasks, clients[CONTROLLERS], credentials, settings, admin)
        if SCHEDULER in clients:
            _start_scheduler(tasks, clients[SCHEDULER], credentials, settings)
        if settings.has_provisioner_alone:
            client = await stack.enter_async_context(
                connected(settings, credentials, credentials.controllers, "moorage-provisioner")
            )
            options = _controller_options(credentials, settings)
            tasks.create_task(run_alone(client, admin, options, SystemClock()))
        if settings.has_runtimes and (CONTROLLERS in clients or settings.has_provisioner_alone):
            await wait_own_kinds(admin)
        notify_ready()


async def wait_own_kinds(client: Client, within_s: float = _OWN_KINDS_S) -> None:
    """Wait until the API server serves the kinds of our own group, which the controllers install.

    So that a caller that waits for the cluster finds them. If they cannot be installed, returns
    after a while all the same: the installation is tried again.
    """
    try:
        async with asyncio.timeout(within_s):
            await wait_installed(client, SystemClock())
    except TimeoutError:
        log.warning("the kinds of our own group are not served yet", after_s=within_s)


def _controller_options(credentials: Credentials, settings: Settings) -> ControllerOptions:
    authority = credentials.authority
    return ControllerOptions(
        cluster_ca=authority.certificate.read_text(),
        cluster_ca_key=authority.key,
        runs_runtimes=settings.has_runtimes,
        installs_definitions=settings.has_runtimes,
        creates_classes=settings.is_enabled("RuntimeClass") and settings.default_classes,
        missing_network=settings.missing_network,
        load_balancer_addresses=(settings.node_ip,) if settings.routes_services else (),
        is_listening=lambda address, port: is_listening(address, *port),
    )


def _start_controllers(
    tasks: asyncio.TaskGroup,
    client: Client,
    credentials: Credentials,
    settings: Settings,
    admin: Client,
) -> None:
    queues, overhead = QueueMetrics(), OverheadMetrics()
    options = _controller_options(credentials, settings)

    def families() -> Iterable[Family]:
        return (*queues.families(), *overhead.families())

    served = _Served(settings.controllers_port, credentials.controllers_server, families)
    with counting_queues(queues):
        tasks.create_task(
            run_controllers(
                client, options, SystemClock(), runtimes=admin, overhead_metrics=overhead
            )
        )
    tasks.create_task(_serve(served, credentials, client))


def _start_scheduler(
    tasks: asyncio.TaskGroup,
    client: Client,
    credentials: Credentials,
    settings: Settings,
) -> None:
    options = SchedulerOptions(
        filters_by_handler=settings.filters_by_handler and settings.has_runtimes
    )
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
