"""Container lifecycle hooks.

Source: core/v1 LifecycleHandler, KEP-3960 (sleep); kubelet `lifecycle/handlers.go`.
"""

from __future__ import annotations

import asyncio

from moorage.api.clock import Clock
from moorage.api.containers import HTTPGetAction, LifecycleHandler
from moorage.api.pods import Pod
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.pod_facts.sources import format_pod
from moorage.node.probes.checks import HttpClient, HttpFailure
from moorage.node.runtime.engine import Engine
from moorage.wire.cri import CriError

NO_LIMIT_S = 0
_MOST_CHARACTERS = 1024


class HookError(Exception):
    """A hook failed; the text is for the log and the container's status."""


class Hooks:
    """Runs postStart and preStop hooks of this node's containers."""

    def __init__(self, engine: Engine, http: HttpClient, clock: Clock) -> None:
        self._engine = engine
        self._http = http
        self._clock = clock

    async def run(
        self,
        pod: Pod,
        container: AnyContainer,
        container_id: str,
        handler: LifecycleHandler,
        address: str,
        *,
        within_s: int = NO_LIMIT_S,
    ) -> None:
        """Run one hook until it completes. `address` is the pod's. Raises HookError.

        The engine kills a command that takes longer than `within_s` seconds.
        """
        if handler.exec is not None:
            await self._exec(pod, container, container_id, handler.exec.command, within_s)
        elif handler.http_get is not None:
            await self._http_get(pod, container, handler.http_get, address)
        elif handler.sleep is not None:
            await self._clock.sleep(handler.sleep.seconds)
        else:
            raise HookError("Cannot run handler: it names no exec, httpGet or sleep")

    async def _exec(
        self,
        pod: Pod,
        container: AnyContainer,
        container_id: str,
        command: tuple[str, ...],
        within_s: int,
    ) -> None:
        where = f'for Container "{container.name}" in Pod "{format_pod(pod)}" failed'
        words = _bounded(" ".join(command))
        what = f"Exec lifecycle hook ([{words}]) {where}"
        try:
            result = await self._engine.exec_sync(container_id, command, within_s)
        except CriError as error:
            raise HookError(f'{what} - error: {error}, message: ""') from error
        if result.exit_code != 0:
            errors = _bounded(result.stderr.decode(errors="replace"))
            output = _bounded((result.stdout + result.stderr).decode(errors="replace"))
            raise HookError(
                f"{what} - error: command '{words}' exited with {result.exit_code}: {errors}, "
                f'message: "{output}"'
            )

    async def _http_get(
        self, pod: Pod, container: AnyContainer, action: HTTPGetAction, address: str
    ) -> None:
        try:
            await self._http.get(action, container, address, purpose="lifecycle", timeout_s=None)
        except (HttpFailure, ValueError) as error:
            raise HookError(
                f"HTTP lifecycle hook ({action.path}) for Container "
                f'"{container.name}" in Pod "{format_pod(pod)}" failed - error: {error}'
            ) from error


def _bounded(text: str) -> str:
    """Return the end of a text: where a command fails it says why in its last lines."""
    return text if len(text) <= _MOST_CHARACTERS else f"…{text[-_MOST_CHARACTERS:]}"


async def bounded(clock: Clock, seconds: float, hook: asyncio.Task[None]) -> bool:
    """Wait for a hook for at most `seconds`; return whether it has completed."""
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((hook, sleeper), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
    return hook.done()
