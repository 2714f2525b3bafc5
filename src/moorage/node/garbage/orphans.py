"""Orphan collection: removes sandboxes, directories, mounts and cgroups of pods that are gone.

Only objects with this agent's owner label are removed: other clusters may share the engine. Source:
kubelet `HandlePodCleanups`, `cleanupOrphanedPodDirs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
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
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.errors import TeardownError
from moorage.node.pods.stopping import ContainerStopper
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import PodView
from moorage.node.volumes.pod_volumes import VolumeKeeper

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
