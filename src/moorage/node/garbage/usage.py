"""Evicting pods that fill an emptyDir beyond its limit.

Memory-backed volumes are limited by their file system; those on disk are measured now and then.
Source: core/v1 EmptyDirVolumeSource `sizeLimit`; kubelet eviction manager.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from moorage.api import quantity
from moorage.api.clock import Clock
from moorage.api.pods import Pod
from moorage.node.metrics import Metrics
from moorage.node.paths import NodePaths
from moorage.node.pods.worker import PodWorker
from moorage.node.status.knowledge import Ending
from moorage.node.volumes.kinds import EMPTY_DIR, PLUGINS

_PERIOD_S = 10.0
_BLOCK_BYTES = 512


class UsageWatch:
    """Looks at limited volumes. `run()` goes on until cancelled."""

    def __init__(
        self,
        workers: Callable[[], Iterable[PodWorker]],
        paths: NodePaths,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._workers = workers
        self._paths = paths
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Measure once, and evict whoever is beyond a limit."""
        for worker in list(self._workers()):
            if worker.is_active:
                await self._look(worker)

    async def _look(self, worker: PodWorker) -> None:
        for volume, limit in _limited(worker.pod):
            place = self._paths.pod(worker.uid).volume(PLUGINS[EMPTY_DIR], volume)
            used = await asyncio.to_thread(disk_use_bytes, place)
            if used > quantity.parse(limit).value:
                message = f'Usage of EmptyDir volume "{volume}" exceeds the limit "{limit}". '
                if worker.evict(Ending("Evicted", message)):
                    self._metrics.evictions.count(eviction_signal="emptydirfs.limit")


def _limited(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        source = volume.empty_dir
        if source is not None and source.size_limit and not source.medium:
            yield volume.name, source.size_limit


def disk_use_bytes(directory: Path) -> int:
    """What a directory takes on disk, files with several names counted once. Blocks."""
    total, seen = 0, set()
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                info = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue
            if (info.st_dev, info.st_ino) not in seen:
                seen.add((info.st_dev, info.st_ino))
                total += info.st_blocks * _BLOCK_BYTES
    return total
