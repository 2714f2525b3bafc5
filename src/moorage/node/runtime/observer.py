"""Engine observer: current views of the engine's pods, and notification of changes.

An engine with event streaming reports changes at once; any other is polled once a second with two
list calls for the whole node, and only changed objects are read. The agent's own actions refresh
the views directly, so that a start never waits for a list. Source: kubelet PLEG, KEP-3386.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.runtime.engine import Engine, termination_message
from moorage.node.runtime.views import (
    ContainerView,
    PodView,
    SandboxView,
    State,
    container_view,
    is_step_back,
    pod_view,
    sandbox_view,
    state_of,
)
from moorage.wire.cri import CriError, pb

log = Log(__name__)

T = TypeVar("T")

_PARALLEL_READS = 16
_EVENTED_PERIOD_S = 300.0
_EVENT_RETRY_S = 5.0

Listener = Callable[[str], None]
"""Called with a pod's UID when its view has changed. Must not block."""


@dataclass(slots=True)
class _Known(Generic[T]):
    view: T
    since: int


class Observer:
    """Views of every pod on the engine. `run()` keeps them current."""

    def __init__(self, engine: Engine, clock: Clock, *, period_s: float) -> None:
        self._engine = engine
        self._clock = clock
        self._period_s = period_s
        self._sandboxes: dict[str, _Known[SandboxView]] = {}
        self._containers: dict[str, _Known[ContainerView]] = {}
        self._pods: dict[str, PodView] = {}
        self._listeners: list[Listener] = []
        self._round = 0
        self._reads = asyncio.Semaphore(_PARALLEL_READS)
        self._listing = asyncio.Lock()
        self._listed = asyncio.Event()
        self._is_evented = False

    @property
    def pods(self) -> Sequence[PodView]:
        """Return every pod with a sandbox or container on the engine."""
        return tuple(self._pods.values())

    def view(self, uid: str) -> PodView:
        """Return the view of a pod; an empty one when the engine has nothing of it."""
        return self._pods.get(uid) or PodView(uid)

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def wait_listed(self) -> None:
        """Block until the engine has been listed completely for the first time."""
        await self._listed.wait()

    async def run(self) -> None:
        """Watch the engine until cancelled; retries while the engine does not answer."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._relist_forever())
            tasks.create_task(self._follow_events())

    async def relist(self) -> None:
        """List the engine now. Raises CriError."""
        async with self._listing:
            self._round += 1
            started = self._round
            sandboxes, containers = await asyncio.gather(
                self._engine.sandboxes(), self._engine.containers()
            )
            await self._enter(started, sandboxes, containers)
            self._listed.set()

    async def refresh_pod(self, uid: str) -> None:
        """Read one pod from the engine. Raises CriError, possibly in an ExceptionGroup."""
        self._round += 1
        started = self._round
        sandboxes, containers = await asyncio.gather(
            self._engine.sandboxes(uid), self._engine.containers(uid)
        )
        self._drop_vanished(started, _ids(sandboxes), _ids(containers), uid=uid)
        async with asyncio.TaskGroup() as tasks:
            for sandbox in sandboxes:
                tasks.create_task(self._read_sandbox(sandbox.id))
            for container in containers:
                tasks.create_task(self._read_container(container.id, container.pod_sandbox_id))
        self._rebuild(uid)

    async def refresh_sandbox(self, sandbox_id: str) -> SandboxView | None:
        """Read one sandbox and notify listeners; None if it does not exist. Raises CriError."""
        known = self._sandboxes.get(sandbox_id)
        view = await self._read_sandbox(sandbox_id)
        if view is not None:
            self._rebuild(view.uid)
        elif known is not None:
            # Removed from the known sandboxes, so no later list would detect the change.
            self._rebuild(known.view.uid)
        return view

    async def refresh_container(self, container_id: str, sandbox_id: str) -> ContainerView | None:
        """Read one container and notify listeners; None if it does not exist. Raises CriError."""
        known = self._containers.get(container_id)
        view = await self._read_container(container_id, sandbox_id)
        if view is not None:
            self._rebuild(view.uid)
        elif known is not None:
            self._rebuild(known.view.uid)
        return view

    def forget_container(self, container_id: str) -> None:
        """Drop a container that the agent has removed."""
        known = self._containers.pop(container_id, None)
        if known is not None:
            self._rebuild(known.view.uid)

    def forget_sandbox(self, sandbox_id: str) -> None:
        """Drop a sandbox that the agent has removed, with its containers."""
        known = self._sandboxes.pop(sandbox_id, None)
        inside = [
            key for key, entry in self._containers.items() if entry.view.sandbox_id == sandbox_id
        ]
        for key in inside:
            del self._containers[key]
        if known is not None:
            self._rebuild(known.view.uid)

    async def _relist_forever(self) -> None:
        is_failing = False
        while True:
            try:
                await self.relist()
                is_failing = False
            except CriError as error:
                if not is_failing:
                    log.warning("listing pods failed", error=error)
                is_failing = True
            period_s = _EVENTED_PERIOD_S if self._is_evented else self._period_s
            await self._clock.sleep(self._period_s if is_failing else period_s)

    async def _follow_events(self) -> None:
        while True:
            try:
                async for event in self._engine.events():
                    self._is_evented = True
                    await self._apply(event)
            except CriError as error:
                if error.is_unimplemented:
                    log.info("engine has no events, listing instead", period_s=self._period_s)
                    return
                log.warning("event stream broke", error=error)
            self._is_evented = False
            await self._clock.sleep(_EVENT_RETRY_S)

    async def _apply(self, event: pb.ContainerEventResponse) -> None:
        """Handle an event by reading its pod again, because events may be old or repeated."""
        uid = event.pod_sandbox_status.metadata.uid
        if not uid:
            return
        try:
            await self.refresh_pod(uid)
        except* CriError as group:
            log.warning("reading a pod after its event failed", uid=uid, error=group.exceptions[0])

    async def _enter(
        self,
        started: int,
        sandboxes: Iterable[pb.PodSandbox],
        containers: Iterable[pb.Container],
    ) -> None:
        ours = [sandbox for sandbox in sandboxes if sandbox.labels.get(POD_UID)]
        inside = [container for container in containers if container.labels.get(POD_UID)]
        changed = self._drop_vanished(started, _ids(ours), _ids(inside))
        stale_sandboxes: dict[str, list[str]] = {}
        stale_containers: dict[str, list[tuple[str, str]]] = {}
        for sandbox in ours:
            if self._is_sandbox_stale(sandbox):
                uid = sandbox.labels[POD_UID]
                stale_sandboxes.setdefault(uid, []).append(sandbox.id)
        for container in inside:
            if self._is_container_stale(container):
                uid = container.labels[POD_UID]
                pair = (container.id, container.pod_sandbox_id)
                stale_containers.setdefault(uid, []).append(pair)
        stale = stale_sandboxes.keys() | stale_containers.keys()
        for uid in changed - stale:
            self._rebuild(uid)
        if stale:
            async with asyncio.TaskGroup() as tasks:
                for uid in stale:
                    tasks.create_task(
                        self._reread(
                            uid, stale_sandboxes.get(uid, []), stale_containers.get(uid, [])
                        )
                    )

    async def _reread(
        self, uid: str, sandboxes: list[str], containers: list[tuple[str, str]]
    ) -> None:
        try:
            for sandbox_id in sandboxes:
                await self._read_sandbox(sandbox_id)
            for container_id, sandbox_id in containers:
                await self._read_container(container_id, sandbox_id)
        except CriError as error:
            # The next list detects the same difference and retries.
            log.warning("reading a pod failed", uid=uid, error=error)
        self._rebuild(uid)

    def _is_sandbox_stale(self, sandbox: pb.PodSandbox) -> bool:
        known = self._sandboxes.get(sandbox.id)
        if known is None:
            return True
        is_ready = sandbox.state == pb.SANDBOX_READY
        lacks_address = is_ready and not known.view.ips and not known.view.is_host_network
        return known.view.is_ready != is_ready or lacks_address

    def _is_container_stale(self, container: pb.Container) -> bool:
        known = self._containers.get(container.id)
        if known is None:
            return True
        state = state_of(container.state)
        return known.view.state != state and not is_step_back(known.view.state, state)

    def _drop_vanished(
        self, started: int, sandboxes: set[str], containers: set[str], *, uid: str | None = None
    ) -> set[str]:
        """Drop what a list begun in round `started` lacks, except what was read after that."""
        gone_sandboxes = _vanished(self._sandboxes, sandboxes, started, uid)
        gone_containers = _vanished(self._containers, containers, started, uid)
        changed = {self._sandboxes.pop(key).view.uid for key in gone_sandboxes}
        changed |= {self._containers.pop(key).view.uid for key in gone_containers}
        return changed

    async def _read_sandbox(self, sandbox_id: str) -> SandboxView | None:
        async with self._reads:
            try:
                status = await self._engine.sandbox_status(sandbox_id)
            except CriError as error:
                if not error.is_not_found:
                    raise
                self._sandboxes.pop(sandbox_id, None)
                return None
        view = sandbox_view(status)
        self._sandboxes[sandbox_id] = _Known(view, self._round + 1)
        return view

    async def _read_container(self, container_id: str, sandbox_id: str) -> ContainerView | None:
        async with self._reads:
            try:
                status = await self._engine.container_status(container_id)
            except CriError as error:
                if not error.is_not_found:
                    raise
                self._containers.pop(container_id, None)
                return None
        view = container_view(status, sandbox_id, await termination_message(status))
        known = self._containers.get(container_id)
        if known is not None and known.view.state == view.state == State.EXITED:
            # A pod that has ended loses its files: the message cannot be read again.
            view = replace(view, message=known.view.message)
        if known is None or not is_step_back(known.view.state, view.state):
            self._containers[container_id] = _Known(view, self._round + 1)
        return view

    def _rebuild(self, uid: str) -> None:
        sandboxes = [
            sandbox.view for sandbox in self._sandboxes.values() if sandbox.view.uid == uid
        ]
        containers = [
            container.view for container in self._containers.values() if container.view.uid == uid
        ]
        before = self._pods.get(uid)
        after = pod_view(uid, sandboxes, containers)
        if after == before or (before is None and after.is_empty):
            return
        if after.is_empty:
            del self._pods[uid]
        else:
            self._pods[uid] = after
        for listener in self._listeners:
            listener(uid)


def _vanished(
    known: dict[str, _Known[SandboxView]] | dict[str, _Known[ContainerView]],
    listed: set[str],
    started: int,
    uid: str | None,
) -> list[str]:
    return [
        key
        for key, entry in known.items()
        if key not in listed and entry.since <= started and uid in (None, entry.view.uid)
    ]


def _ids(items: Iterable[pb.PodSandbox] | Iterable[pb.Container]) -> set[str]:
    return {item.id for item in items}
