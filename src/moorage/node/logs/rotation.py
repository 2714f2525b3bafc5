"""Keeping container logs small, and removing those of containers that are gone.

A log that has grown too long is renamed and the engine told to open a new one; older pieces are
compressed, the oldest removed. Source: kubelet `container_log_manager.go`, CRI logging design.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections.abc import Iterable
from pathlib import Path

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.cri import CriError
from moorage.node.options import LogRotationOptions
from moorage.node.paths import NodePaths, legacy_log_link
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import ContainerView, PodView, State

log = Log(__name__)

_COMPRESSED = ".gz"
_UNFINISHED = ".tmp"


class LogKeeper:
    """The logs of this node's containers. `run()` rotates them."""

    def __init__(
        self,
        *,
        engine: Engine,
        observer: Observer,
        paths: NodePaths,
        links: Path | None,
        options: LogRotationOptions,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._observer = observer
        self._paths = paths
        self._links = links
        self._options = options
        self._clock = clock

    async def run(self) -> None:
        """Rotate what has grown too long, again and again, until cancelled."""
        while True:
            await self._clock.sleep(self._options.period_s)
            for pod in self._observer.pods:
                for container in pod.containers:
                    if container.state is State.RUNNING and container.log_path:
                        await self._rotate_if_long(container)

    async def remove_pod(self, pod: Pod, view: PodView) -> None:
        """Remove every log of a pod. Raises OSError."""
        meta = pod.metadata
        await asyncio.to_thread(self._unlink, meta.name, meta.namespace, view.containers)
        directory = self._paths.pod_logs(meta.namespace, meta.name, meta.uid)
        await asyncio.to_thread(_remove_tree, directory)

    async def remove_container(self, view: PodView, container: ContainerView) -> None:
        """Remove the logs of one container that is being removed. Raises OSError."""
        await asyncio.to_thread(self._unlink, view.name, view.namespace, [container])
        if container.log_path:
            await asyncio.to_thread(_remove_pieces, Path(container.log_path))

    def _unlink(self, pod: str, namespace: str, containers: Iterable[ContainerView]) -> None:
        if self._links is None:
            return
        for container in containers:
            name = legacy_log_link(pod, namespace, container.name, container.id)
            (self._links / name).unlink(missing_ok=True)

    async def _rotate_if_long(self, container: ContainerView) -> None:
        path = Path(container.log_path)
        try:
            size = await asyncio.to_thread(_size, path)
            if size is None:
                # It was renamed, and whoever did it ended before the engine was told.
                await self._engine.reopen_log(container.id)
            elif size >= self._options.max_bytes:
                await self._rotate(container, path)
        except (CriError, OSError) as error:
            log.warning("log not rotated", path=path, error=error)

    async def _rotate(self, container: ContainerView, path: Path) -> None:
        # The present file and the one to come count too.
        await asyncio.to_thread(_thin_out, path, self._options.max_files - 2)
        stamp = self._clock.now().strftime("%Y%m%d-%H%M%S")
        renamed = path.with_name(f"{path.name}.{stamp}")
        await asyncio.to_thread(path.rename, renamed)
        try:
            await self._engine.reopen_log(container.id)
        except CriError:
            # The engine still writes to the old file: it keeps its name.
            await asyncio.to_thread(renamed.rename, path)
            raise


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def pieces_of(path: Path) -> list[Path]:
    """The rotated pieces of a log, oldest first; the present file is none of them."""
    return sorted(
        each for each in path.parent.glob(f"{path.name}.*") if not each.name.endswith(_UNFINISHED)
    )


def _thin_out(path: Path, keep: int) -> None:
    """Compress the rotated pieces and remove the oldest beyond `keep`."""
    for unfinished in path.parent.glob(f"{path.name}.*{_UNFINISHED}"):
        unfinished.unlink()
    pieces = pieces_of(path)
    for old in pieces[: max(0, len(pieces) - keep)]:
        old.unlink()
    for piece in pieces[max(0, len(pieces) - keep) :]:
        if not piece.name.endswith(_COMPRESSED):
            _compress(piece)


def _compress(piece: Path) -> None:
    unfinished = piece.with_name(piece.name + _UNFINISHED)
    with piece.open("rb") as source, gzip.open(unfinished, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target)
    unfinished.rename(piece.with_name(piece.name + _COMPRESSED))
    piece.unlink()


def _remove_pieces(path: Path) -> None:
    for piece in (path, *pieces_of(path)):
        piece.unlink(missing_ok=True)


def _remove_tree(directory: Path) -> None:
    if directory.is_dir():
        shutil.rmtree(directory)
