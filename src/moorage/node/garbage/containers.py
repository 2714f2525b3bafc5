"""Container garbage collection: removes dead containers, keeping recent ones for logs.

The selection is pure. Pods without a worker are skipped: orphan collection removes them as a whole.
Source: kubelet `ContainerGCPolicy`, `kuberuntime_gc.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.node.failures import log_failure
from moorage.node.log_rotation import LogKeeper
from moorage.node.options import ContainerGarbageOptions
from moorage.node.paths import NodePaths
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State

log = Log(__name__)

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Garbage:
    """Containers and sandboxes to remove."""

    containers: tuple[tuple[PodView, ContainerView], ...] = ()
    sandboxes: tuple[SandboxView, ...] = ()


def garbage_in(pods: Sequence[PodView], options: ContainerGarbageOptions, now_s: float) -> Garbage:
    """Return dead containers beyond those to keep, and dead sandboxes without containers."""
    containers: list[tuple[PodView, ContainerView]] = []
    kept: list[tuple[PodView, ContainerView]] = []
    sandboxes: list[SandboxView] = []
    for pod in pods:
        old = [
            container
            for container in _superseded(pod)
            if _age_s(container, now_s) >= options.minimum_age_s
        ]
        containers += [
            (pod, container) for container in old if _place(pod, container) >= options.per_container
        ]
        kept += [
            (pod, container) for container in old if _place(pod, container) < options.per_container
        ]
        sandboxes += _empty_sandboxes(pod)
    if options.in_all >= 0 and len(kept) > options.in_all:
        kept.sort(key=lambda pair: pair[1].finished_ns)
        containers += kept[: len(kept) - options.in_all]
    return Garbage(tuple(containers), tuple(sandboxes))


def all_garbage_in(pods: Sequence[PodView], ended: Collection[str]) -> Garbage:
    """Return every dead container with a successor, or of a pod that has ended.

    Source: kubelet `DeleteAllUnusedContainers`.
    """
    containers = [
        (pod, container)
        for pod in pods
        for container in (pod.containers if pod.uid in ended else _superseded(pod))
        if container.state is State.EXITED
    ]
    return Garbage(tuple(containers))


def _superseded(pod: PodView) -> list[ContainerView]:
    """Return dead containers with a successor; the newest of each name is the pod's current one."""
    return [
        container
        for container in pod.containers
        if container.state is State.EXITED and pod.latest(container.name) is not container
    ]


def _place(pod: PodView, container: ContainerView) -> int:
    """Return how many dead containers of the same name are newer, not counting the current one."""
    return pod.history(container.name).index(container) - 1


def _age_s(container: ContainerView, now_s: float) -> float:
    return now_s - container.finished_ns / _NANO


def _empty_sandboxes(pod: PodView) -> list[SandboxView]:
    inhabited = {container.sandbox_id for container in pod.containers}
    return [
        sandbox
        for sandbox in pod.sandboxes[1:]
        if not sandbox.is_ready and sandbox.id not in inhabited
    ]


class ContainerCollector:
    """Removes dead containers and sandboxes of active pods. `run()` blocks until cancelled."""

    def __init__(
        self,
        *,
        engine: Engine,
        observer: Observer,
        logs: LogKeeper,
        paths: NodePaths,
        options: ContainerGarbageOptions,
        clock: Clock,
        workers: Callable[[], Collection[str]],
        ended: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`ended` returns the UIDs of the pods of which nothing will run again."""
        self._engine = engine
        self._observer = observer
        self._logs = logs
        self._paths = paths
        self._options = options
        self._clock = clock
        self._workers = workers
        self._ended = ended

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._options.period_s)
            await self.collect()

    async def collect(self) -> None:
        """Remove the current garbage; failures are logged."""
        await self._remove(garbage_in(self._pods(), self._options, self._clock.now().timestamp()))

    async def collect_all(self) -> None:
        """Remove every dead container, to free disk: those kept for logs, and of ended pods."""
        ended = set(self._ended())
        await self._remove(all_garbage_in(self._pods(), ended))

    def _pods(self) -> list[PodView]:
        owned = set(self._workers())
        return [pod for pod in self._observer.pods if pod.uid in owned]

    async def _remove(self, garbage: Garbage) -> None:
        for pod, container in garbage.containers:
            with log_failure("removing a dead container", container=container.id):
                await self._logs.remove_container(pod, container)
                await asyncio.to_thread(remove_message_file, self._paths, container)
                await self._engine.remove_container(container.id)
                self._observer.forget_container(container.id)
        for sandbox in garbage.sandboxes:
            with log_failure("removing a dead sandbox", sandbox=sandbox.id):
                await self._engine.stop_sandbox(sandbox.id)
                await self._engine.remove_sandbox(sandbox.id)
                self._observer.forget_sandbox(sandbox.id)


def remove_message_file(paths: NodePaths, container: ContainerView) -> None:
    """Remove a dead container's termination message file; the pod has one for each restart.

    Blocks. Raises OSError.
    """
    directory = paths.pod(container.uid).container(container.name)
    for mount in container.mounts:
        file = Path(mount.host_path)
        if file.parent == directory:
            file.unlink(missing_ok=True)
