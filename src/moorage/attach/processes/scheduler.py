"""Scheduler alone, in the place of kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.clock import SystemClock
from moorage.attach.processes.connection import connected_to
from moorage.scheduler import SchedulerOptions, run_scheduler
from moorage.wire.client.config import ClientConfig


async def run(config: ClientConfig, options: SchedulerOptions, ready: Callable[[], None]) -> None:
    """Run until cancelled; call `ready` once the API server is reached. Raises ApiUnusableError."""
    async with connected_to(config, "moorage-scheduler") as client:
        ready()
        await run_scheduler(client, options, SystemClock())
