"""Controllers alone, in the place of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.clock import SystemClock
from moorage.client import ClientConfig
from moorage.cluster.standalone.connection import connected_to
from moorage.controllers import ControllerOptions, run_controllers


async def run(config: ClientConfig, options: ControllerOptions, ready: Callable[[], None]) -> None:
    """Run until cancelled; call `ready` once the API server is reached. Raises ApiUnusableError."""
    async with connected_to(config, "moorage-controllers") as client:
        ready()
        await run_controllers(client, options, SystemClock())
