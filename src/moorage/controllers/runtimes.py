"""Controllers of runtimes: those of our own group, which no Kubernetes has.

They wait until the definitions of their kinds are installed, which they do themselves, so that the
same runs in `moor up`, beside kube-controller-manager, and on any other API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from moorage.api.clock import Clock
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.controllers.informers import Informers
from moorage.controllers.options import ControllerOptions
from moorage.controllers.overhead_drift import OverheadDriftController, OverheadMetrics
from moorage.controllers.runtimeclasses import RuntimeClassController
from moorage.controllers.runtimeclasses.profiles import profile_informer
from moorage.controllers.runtimeclassquotas import RuntimeClassQuotaController
from moorage.controllers.runtimegates import RuntimeGateController
from moorage.controllers.runtimeinstallations import RuntimeInstallationController
from moorage.controllers.runtimepolicies import FloorLabelController
from moorage.controllers.runtimerollouts import RuntimeRolloutController
from moorage.runtimes.custom_resources import install_definitions, wait_installed
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.rest import Client, UnreachableError

log = Log(__name__)


class _Controller(Protocol):
    async def run(self) -> None: ...


class RuntimeControllers:
    """All of them; they share the informers of the other controllers."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: Callable[[str], EventRecorder],
        options: ControllerOptions,
        clock: Clock,
        *,
        overhead_metrics: OverheadMetrics | None = None,
    ) -> None:
        """`recorder` returns the event recorder of a component, which its caller runs."""
        self._client = client
        self._clock = clock
        self._installs = options.installs_definitions
        self._profiles = profile_informer(client, clock)
        self._controllers: list[_Controller] = [
            RuntimeClassQuotaController(client, informers, clock),
            RuntimeRolloutController(
                client, informers, recorder("runtime-rollout-controller"), clock
            ),
            RuntimeInstallationController(
                client, informers, recorder("runtime-installation-controller"), clock
            ),
            OverheadDriftController(
                client,
                informers,
                self._profiles,
                recorder("overhead-drift-controller"),
                clock,
                metrics=overhead_metrics,
            ),
        ]
        if options.creates_classes:
            self._controllers.append(
                RuntimeClassController(client, informers, self._profiles, clock)
            )
        if options.removes_gates:
            self._controllers.append(
                RuntimeGateController(
                    client, informers, self._profiles, recorder("runtime-gate-controller"), clock
                )
            )

        if options.labels_floors:
            self._controllers.append(FloorLabelController(client, informers, clock))

    async def run(self) -> None:
        """Install the definitions, or wait until another program has; then run until cancelled."""
        if self._installs:
            await self._install()
        else:
            await wait_installed(self._client, self._clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._profiles.run())
            for controller in self._controllers:
                tasks.create_task(controller.run())

    async def _install(self) -> None:
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        while True:
            try:
                return await install_definitions(self._client)
            except (StatusError, UnreachableError) as error:
                log.warning("definitions cannot be installed", error=error)
                await self._clock.sleep(backoff.next_s())
