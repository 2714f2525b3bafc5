"""Container garbage collection: removes dead containers, keeping recent ones for logs.

The selection is pure. Pods without a worker are skipped: orphan collection removes them as a whole.
Source: kubelet `ContainerGCPolicy`, `kuberuntime_gc.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.cgroups.values import KUBEPODS, QOS_DIRECTORIES
from moorage.node.failures import log_failure
from moorage.node.log_rotation import LogKeeper
from moorage.node.options import ContainerGarbageOptions
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.errors import TeardownError
from moorage.node.pods.stopping import ContainerStopper
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State
from moorage.node.volumes.pod_volumes import VolumeKeeper

# Orphan collection: removes sandboxes, directories, mounts and cgroups of pods that are gone.
#
# Only objects with this agent's owner label are removed: other clusters may share the engine.
# Source: kubelet `HandlePodCleanups`, `cleanupOrphanedPodDirs`.

log = Log(__name__)

_PERIOD_S = 30.0


class OrphanCollector:
    """Stops and removes orphaned pods. `run()` blocks until cancelled."""

    def __init__(
        self,
        *,
        owner: str,
        node_name: str,
        engine: Engine,
        observer: Observer,
        stopper: ContainerStopper,
        volumes: VolumeKeeper,
        cgroups: CgroupTree,
        logs: LogKeeper,
        paths: NodePaths,
        clock: Clock,
        workers: Callable[[], Collection[str]],
    ) -> None:
        self._owner = owner
        self._node_name = node_name
        self._engine = engine
        self._observer = observer
        self._stopper = stopper
        self._volumes = volumes
        self._cgroups = cgroups
        self._logs = logs
        self._paths = paths
        self._clock = clock
        self._workers = workers

    async def run(self) -> None:
        """Collect periodically. Start it only after pods and engine have been listed."""
        while True:
            with log_failure("looking for orphans"):
                await self.collect()
            await self._clock.sleep(_PERIOD_S)

    async def collect(self) -> None:
        """Collect once. Failures are logged, and retried in the next pass."""
        for view in self._observer.pods:
            if self._is_orphan(view.uid) and await self._is_ours(view):
                await self._attempt(view.uid, self._end(view))
        for uid in await asyncio.to_thread(_names, self._paths.pods):
            if self._is_orphan(uid) and self._observer.view(uid).is_stopped:
                await self._attempt(uid, self._clean(uid))

    def _is_orphan(self, uid: str) -> bool:
        """Return whether a pod has no worker.

        Checked late, as pods arrive while others are stopped.
        """
        return uid not in self._workers()

    async def _attempt(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        with log_failure("removing an orphan", uid=uid):
            try:
                await work
            except TeardownError as error:
                log.warning("orphan not removed", uid=uid, error=error)

    async def _is_ours(self, view: PodView) -> bool:
        """Return whether this agent, or an earlier version of it, created the pod's sandboxes.

        Earlier versions set the bare node name as owner, which two clusters on one host share:
        there a directory of the pod in the agent's own tree is required as well.
        """
        owners = {sandbox.owner for sandbox in view.sandboxes}
        if self._owner in owners:
            return True
        return self._node_name in owners and await asyncio.to_thread(
            self._paths.has_traces, view.namespace, view.name, view.uid
        )

    async def _end(self, view: PodView) -> None:
        log.info("orphan ends", pod=f"{view.namespace}/{view.name}", uid=view.uid)
        await self._stopper.stop_orphan(view)
        for sandbox in view.sandboxes:
            await self._engine.remove_sandbox(sandbox.id)
            self._observer.forget_sandbox(sandbox.id)
        meta = ObjectMeta(name=view.name, namespace=view.namespace, uid=view.uid)
        await self._logs.remove_pod(Pod(metadata=meta), view)

    async def _clean(self, uid: str) -> None:
        for directory in QOS_DIRECTORIES.values():
            path = "/".join(part for part in (KUBEPODS, directory, f"pod{uid}") if part)
            await asyncio.to_thread(self._cgroups.remove, path)
        await self._volumes.remove(uid)


def _names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()] if directory.is_dir() else []


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
