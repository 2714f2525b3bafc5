"""Controllers alone: all, in the place of kube-controller-manager, or those of our own group.

Those of our own group run beside another controller manager, in several processes of which one
leads.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Iterable

import msgspec

from moorage.api.clock import SystemClock
from moorage.attach.processes.connection import LONG_WATCH_S, client_of, connected_to, wait_ready
from moorage.attach.processes.health import HEALTH_ADDRESS, serve_health
from moorage.cluster.errors import ClusterError
from moorage.controllers import (
    ControllerOptions,
    OverheadMetrics,
    WebhookService,
    run_controllers,
    run_runtimes,
)
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.leader_election import LeaderElector, LeadershipLostError, LeaseTiming
from moorage.wire.metrics import Family, QueueMetrics, counting_queues, process_families

LEASE = "moorage-controllers"

TIMING = LeaseTiming(duration_s=12.0, renew_deadline_s=8.0, retry_s=3.0)
"""Another one leads within 15 s of a kill, and a renewal is a request each 3 s."""


class LeaseLostError(ClusterError):
    """This process no longer leads; it is started again, and stands by."""


class RuntimesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the controllers of our own group, alone.

    `webhook` is the Service whose certificate they issue, "" for none; `health_port` serves
    `/healthz`, `/readyz` and `/metrics` over plain HTTP, 0 for none.
    """

    is_leader_elected: bool = False
    webhook: str = ""
    health_port: int = 0


async def run(config: ClientConfig, options: ControllerOptions, ready: Callable[[], None]) -> None:
    """Run until cancelled; call `ready` once the API server is reached. Raises ApiUnusableError."""
    async with connected_to(config, "moorage-controllers") as client:
        ready()
        await run_controllers(client, options, SystemClock())


async def run_own_group(
    config: ClientConfig,
    options: ControllerOptions,
    runtimes: RuntimesOptions,
    ready: Callable[[], None],
) -> None:
    """Run the controllers of our own group until cancelled, while this process leads.

    Raises ApiUnusableError, LeaseLostError; OSError if the port of health is in use.
    """
    clock = SystemClock()
    queues, overhead = QueueMetrics(), OverheadMetrics()
    webhook = WebhookService(runtimes.webhook, config.namespace) if runtimes.webhook else None
    async with (
        client_of(config, "moorage-controllers", watch_s=LONG_WATCH_S) as client,
        asyncio.TaskGroup() as tasks,
    ):

        def families() -> Iterable[Family]:
            parts = queues, overhead, client.metrics
            return (*(one for part in parts for one in part.families()), *process_families())

        async def lead() -> None:
            with counting_queues(queues):
                await run_runtimes(
                    client, options, clock, webhook=webhook, overhead_metrics=overhead
                )

        health: asyncio.Task[None] | None = None
        if runtimes.health_port:
            health = tasks.create_task(serve_health(HEALTH_ADDRESS, runtimes.health_port, families))
        # Probes are answered from the start: the API server may be away for long.
        await wait_ready(client, None)
        ready()
        if runtimes.is_leader_elected:
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            elector = LeaderElector(client, config.namespace, LEASE, identity, clock, TIMING)
            client.check_writes(elector.check_lease)
            try:
                await elector.run(lead)
            except LeadershipLostError as error:
                raise LeaseLostError(f"{error}; another process leads") from error
        else:
            await lead()
        if health is not None:
            health.cancel()
