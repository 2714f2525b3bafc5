"""What earlier agents left of pods that are gone: sandboxes, directories, mounts and cgroups.

Only what bears this node's name is touched: other agents may use the same engine. Source: kubelet
`HandlePodCleanups`, `cleanupOrphanedPodDirs`.
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
from moorage.cri import CriError
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.cgroups.values import KUBEPODS, QOS_DIRECTORIES
from moorage.node.logs.rotation import LogKeeper
from moorage.node.paths import NodePaths
from moorage.node.pods.stopping import ContainerStopper, StopError
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import PodView
from moorage.node.volumes.pod_volumes import VolumeKeeper

log = Log(__name__)

_PERIOD_S = 30.0


class OrphanCollector:
    """Ends and removes pods nobody wants any more. `run()` goes on until cancelled."""

    def __init__(
        self,
        *,
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
        """To be started when pods and engine have been listed."""
        while True:
            await self.collect()
            await self._clock.sleep(_PERIOD_S)

    async def collect(self) -> None:
        """Look once. Failures are logged, and tried again at the next look."""
        for view in self._observer.pods:
            if self._is_orphan(view.uid) and self._is_ours(view):
                await self._attempt(view.uid, self._end(view))
        for uid in await asyncio.to_thread(_names, self._paths.pods):
            if self._is_orphan(uid) and self._observer.view(uid).is_stopped:
                await self._attempt(uid, self._clean(uid))

    def _is_orphan(self, uid: str) -> bool:
        """Asked at the last moment: ending others takes a while, and pods come meanwhile."""
        return uid not in self._workers()

    async def _attempt(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (StopError, CriError, OSError) as error:
            log.warning("orphan not removed", uid=uid, error=error)

    def _is_ours(self, view: PodView) -> bool:
        return any(each.owner == self._node_name for each in view.sandboxes)

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
