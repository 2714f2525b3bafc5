"""Container termination: preStop hook, stop signal, grace period.

Main containers are stopped together, then sidecars in reverse order of their start, all within the
grace period. Source: core/v1 "Pod termination", KEP-753; kubelet `killContainer`,
`terminationOrdering`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.api.clock import Clock, sleep_unless_done
from moorage.api.containers import Container, LifecycleHandler
from moorage.api.logs import Log
from moorage.api.pods import Pod, PodSpec
from moorage.node.pod_facts.containers import Member, member, sidecars
from moorage.node.pod_facts.errors import TeardownError
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pod_facts.grace import MINIMUM_GRACE_S, grace_period_s
from moorage.node.pods.hooks import HookError, Hooks, bounded
from moorage.node.pods.plan import Kill, Reason
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import ContainerView, PodView, State
from moorage.wire.client.recorder import NORMAL, WARNING
from moorage.wire.cri import CriError

# Replacing of containers whose definition changed: what the status says meanwhile.
#
# The kubelet stops such a container and starts its successor in one step, and reports the pod
# before and after it. So does this agent, unless the successor takes long: clients that change an
# image do not see the pod unready for a moment. Source: kubelet `SyncPod`, PLEG relist period.

MOST_S = 1.0
"""How long the end of a container is not reported: upstream looks for it once a second."""


class Replacements:
    """The containers of one pod that are stopped for a successor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stopped: dict[str, tuple[str, float | None]] = {}
        """Name → ID of the container, and when its end was seen first."""

    def begin(self, container: ContainerView) -> None:
        """Note that a container is stopped because its definition changed."""
        self._stopped[container.name] = (container.id, None)

    def left_s(self, view: PodView) -> float:
        """Return for how many seconds more the status stays as it is, 0 to report it now."""
        now_s = self._clock.monotonic()
        left_s = 0.0
        for name, (id_, ended_s) in list(self._stopped.items()):
            latest = view.latest(name)
            if latest is None or (latest.id != id_ and latest.state is not State.CREATED):
                del self._stopped[name]
            elif latest.id != id_ or latest.state is State.EXITED:
                ended_s = now_s if ended_s is None else ended_s
                self._stopped[name] = (id_, ended_s)
                left_s = max(left_s, ended_s + MOST_S - now_s)
        return left_s


log = Log(__name__)

_ENGINE_ENDS_S = 1.0


@dataclass(slots=True)
class _TerminationOrder:
    """Termination order. Each container's event is set when it has ended."""

    ended: dict[str, asyncio.Event]
    before: Mapping[str, list[str]] = field(default_factory=dict)

    async def wait(self, name: str, clock: Clock, seconds: float) -> None:
        """Block until the containers before this one have ended, for at most `seconds`."""
        await sleep_unless_done(clock, seconds, self._all_ended(name))

    async def _all_ended(self, name: str) -> None:
        for other in self.before.get(name, ()):
            await self.ended[other].wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStopper:
    """Stops containers and pods on this node."""

    engine: Engine
    observer: Observer
    hooks: Hooks
    events: PodEvents
    clock: Clock

    async def kill(self, pod: Pod, kill: Kill) -> None:
        """Stop one container of an active pod. Raises TeardownError."""
        await self._stop(pod, kill.container, kill.message, kill_grace_s(pod, kill), None)

    async def stop_pod(self, pod: Pod, view: PodView, grace_s: int) -> None:
        """Stop all containers of a pod, then its sandboxes. Raises TeardownError."""
        order = _termination_order(pod.spec, view.alive)
        # The failure of one container must not cut the others' grace period short.
        outcomes = await asyncio.gather(
            *(self._stop(pod, container, "", grace_s, order) for container in view.alive),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        await self.stop_sandboxes(view)

    async def stop_sandboxes(self, view: PodView) -> None:
        """Stop every sandbox of a pod, which kills what is left in them. Raises TeardownError.

        A dead sandbox keeps its address and its host ports until it is stopped.
        """
        for sandbox in view.sandboxes:
            try:
                await self.engine.stop_sandbox(sandbox.id)
                await self.observer.refresh_sandbox(sandbox.id)
            except CriError as error:
                raise TeardownError(f"failed to stop sandbox {sandbox.id}: {error}") from error

    async def stop_orphan(self, view: PodView) -> None:
        """Stop a pod whose object is gone, with the grace period in its containers' annotations.

        Raises TeardownError.
        """
        for container in view.alive:
            memory = container.memory
            grace_s = MINIMUM_GRACE_S if memory.grace_period_s is None else memory.grace_period_s
            await self._engine_stop(container, max(grace_s, MINIMUM_GRACE_S))
        await self.stop_sandboxes(view)

    async def _stop(
        self,
        pod: Pod,
        container: ContainerView,
        message: str,
        grace_s: int,
        order: _TerminationOrder | None,
    ) -> None:
        begun_s = self.clock.monotonic()
        spec_container = member(pod.spec, container.name)
        if spec_container is not None:
            text = message or f"Stopping container {container.name}"
            self.events.container(
                pod, spec_container, NORMAL, "Killing", text, container_id=container.id
            )
            await self._pre_stop(pod, spec_container, container, grace_s)
        if order is not None:
            left_s = grace_s - (self.clock.monotonic() - begun_s)
            await order.wait(container.name, self.clock, max(left_s, 0.0))
        spent_s = int(self.clock.monotonic() - begun_s)
        await self._engine_stop(container, max(grace_s - spent_s, MINIMUM_GRACE_S))
        if order is not None:
            order.ended[container.name].set()

    async def _pre_stop(
        self, pod: Pod, spec_container: Member, container: ContainerView, grace_s: int
    ) -> None:
        handler = _pre_stop_handler(spec_container)
        if handler is None or grace_s <= 0:
            return
        view = self.observer.view(pod.metadata.uid)
        address = view.ips[0] if view.ips else pod.status.pod_ip
        begun_s = self.clock.monotonic()
        hook = asyncio.create_task(
            self.hooks.run(
                pod, spec_container.container, container.id, handler, address, within_s=grace_s
            )
        )
        # The engine kills a command at its timeout and needs time for that: cancelling ends only
        # the call.
        more_s = _ENGINE_ENDS_S if handler.exec is not None else 0.0
        try:
            if await bounded(self.clock, grace_s + more_s, hook):
                hook.result()
        except HookError as error:
            log.warning("preStop hook failed", container=container.name, error=error)
            if self.clock.monotonic() - begun_s < grace_s:
                text = "PreStopHook failed"
                self.events.container(pod, spec_container, WARNING, "FailedPreStopHook", text)
        finally:
            hook.cancel()

    async def _engine_stop(self, container: ContainerView, grace_s: int) -> None:
        try:
            await self.engine.stop_container(container.id, grace_s)
            await self.observer.refresh_container(container.id, container.sandbox_id)
        except CriError as error:
            raise TeardownError(f"failed to stop container {container.name}: {error}") from error


def kill_grace_s(pod: Pod, kill: Kill) -> int:
    """Return the grace period of one container in seconds: its probe's own, else the pod's."""
    spec_container = member(pod.spec, kill.container.name)
    if spec_container is not None and pod.metadata.deletion_grace_period_seconds is None:
        probe = {
            Reason.LIVENESS: spec_container.container.liveness_probe,
            Reason.STARTUP: spec_container.container.startup_probe,
        }.get(kill.reason)
        if probe is not None and probe.termination_grace_period_seconds is not None:
            return probe.termination_grace_period_seconds
    return grace_period_s(pod)


def _pre_stop_handler(spec_container: Member) -> LifecycleHandler | None:
    lifecycle = spec_container.container.lifecycle
    return lifecycle.pre_stop if lifecycle is not None else None


def _termination_order(spec: PodSpec, alive: Iterable[ContainerView]) -> _TerminationOrder:
    """Return the order: sidecars wait for the main containers and for the sidecars after them."""
    names = {container.name for container in alive}
    ended = {name: asyncio.Event() for name in names}
    waiting = [container.name for container in spec.containers if container.name in names]
    before: dict[str, list[str]] = {}
    in_reverse: list[Container] = [*reversed(sidecars(spec))]
    for sidecar in in_reverse:
        if sidecar.name in names:
            before[sidecar.name] = list(waiting)
            waiting.append(sidecar.name)
    return _TerminationOrder(ended, before)
