"""Log rotation, and removal of the logs of removed containers.

A log that exceeds the limit is renamed, and the engine reopens it; a separate task compresses older
files and removes the oldest. Source: kubelet `container_log_manager.go`, CRI logging design.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.linux.descriptors import open_regular_file
from moorage.linux.trees import remove_tree
from moorage.node.failures import log_failure
from moorage.node.options import LogRotationOptions
from moorage.node.paths import NodePaths, legacy_log_link
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import ContainerView, PodView, State
from moorage.wire.cri import CriError

log = Log(__name__)

_COMPRESSED = ".gz"
_UNFINISHED = ".tmp"


class LogKeeper:
    """Manages the logs of this node's containers. `run()` rotates them."""

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
        self._rotated: dict[Path, None] = {}
        self._has_rotated = asyncio.Event()

    async def run(self) -> None:
        """Rotate logs that exceed the limit and compress rotated ones, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._compress())
            while True:
                await self._clock.sleep(self._options.period_s)
                await self.rotate_long()

    async def rotate_long(self) -> None:
        """Rotate every running container's log that exceeds the limit, once.

        Failures are logged and retried in the next pass. `run` compresses in another task, so that
        one container's log does not delay another's rotation.
        """
        containers = [
            container
            for pod in self._observer.pods
            for container in pod.containers
            if container.state is State.RUNNING and self._is_ours(container)
        ]
        sizes = await asyncio.to_thread(
            _sizes, [Path(container.log_path) for container in containers]
        )
        for container, size in zip(containers, sizes, strict=True):
            if size is None or size >= self._options.max_bytes:
                await self._rotate_or_reopen(container, size)

    async def compress_rotated(self) -> None:
        """Compress and prune the files of the logs rotated since the last call."""
        while self._rotated:
            path = next(iter(self._rotated))
            del self._rotated[path]
            try:
                # The current file counts as well.
                await asyncio.to_thread(_thin_out, path, self._options.max_files - 1)
            except OSError as error:
                # Its directory is removed with the pod.
                log.warning("rotated log not compressed", path=path, error=error)

    def _is_ours(self, container: ContainerView) -> bool:
        """Return whether the log is in this agent's tree.

        Other clusters on the same engine rotate their own.
        """
        path = Path(container.log_path)
        return bool(container.log_path) and path.is_relative_to(self._paths.logs)

    async def remove_pod(self, pod: Pod, view: PodView) -> None:
        """Remove all logs of a pod. Raises OSError."""
        meta = pod.metadata
        await asyncio.to_thread(self._unlink, meta.name, meta.namespace, view.containers)
        directory = self._paths.pod_logs(meta.namespace, meta.name, meta.uid)
        await asyncio.to_thread(remove_tree, directory)

    async def remove_container(self, view: PodView, container: ContainerView) -> None:
        """Remove the logs of a container that is being removed. Raises OSError."""
        await asyncio.to_thread(self._unlink, view.name, view.namespace, [container])
        if container.log_path:
            await asyncio.to_thread(remove_pieces, Path(container.log_path))

    def _unlink(self, pod: str, namespace: str, containers: Iterable[ContainerView]) -> None:
        if self._links is None:
            return
        for container in containers:
            name = legacy_log_link(pod, namespace, container.name, container.id)
            (self._links / name).unlink(missing_ok=True)

    async def _compress(self) -> None:
        while True:
            await self._has_rotated.wait()
            self._has_rotated.clear()
            await self.compress_rotated()

    async def _rotate_or_reopen(self, container: ContainerView, size: int | None) -> None:
        path = Path(container.log_path)
        with log_failure("rotating a log", path=path):
            if size is None:
                # An agent renamed the file and ended before the engine reopened the log.
                await self._engine.reopen_log(container.id)
            else:
                await self._rotate(container, path)

    async def _rotate(self, container: ContainerView, path: Path) -> None:
        stamp = self._clock.now().strftime("%Y%m%d-%H%M%S")
        renamed = path.with_name(f"{path.name}.{stamp}")
        if await asyncio.to_thread(_has_piece, renamed):
            # A second rotation within one second would overwrite the first piece.
            return
        await asyncio.to_thread(path.rename, renamed)
        try:
            await self._engine.reopen_log(container.id)
        except CriError:
            # The engine still writes to the old file: restore its name.
            await asyncio.to_thread(renamed.rename, path)
            raise
        self._rotated[path] = None
        self._has_rotated.set()


def _sizes(paths: Iterable[Path]) -> list[int | None]:
    return [size_of(path) for path in paths]


def size_of(path: Path) -> int | None:
    """Return the size in bytes; None for a missing file, 0 for an unreadable one."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("log not measured", path=path, error=error)
        return 0


def _has_piece(renamed: Path) -> bool:
    return renamed.exists() or renamed.with_name(renamed.name + _COMPRESSED).exists()


def pieces_of(path: Path) -> list[Path]:
    """Return the rotated files of a log, oldest first, without the current file."""
    return sorted(
        file for file in path.parent.glob(f"{path.name}.*") if not file.name.endswith(_UNFINISHED)
    )


def _thin_out(path: Path, keep: int) -> None:
    """Remove the oldest rotated files beyond `keep`, and compress all others but the newest.

    A client may still be following the newest, and the engine may have written its last lines just
    now. Source: kubelet `container_log_manager.go`.
    """
    for unfinished in path.parent.glob(f"{path.name}.*{_UNFINISHED}"):
        unfinished.unlink()
    pieces = pieces_of(path)
    for old in pieces[: max(0, len(pieces) - keep)]:
        old.unlink()
    for piece in pieces[max(0, len(pieces) - keep) : -1]:
        if not piece.name.endswith(_COMPRESSED):
            _compress(piece)


def _compress(piece: Path) -> None:
    unfinished = piece.with_name(piece.name + _UNFINISHED)
    # A pod with a writable mount of the directory may have put something else at either path.
    with (
        open(open_regular_file(piece, os.O_RDONLY), "rb") as source,
        unfinished.open("xb") as file,
        gzip.open(file, "wb", compresslevel=1) as target,
    ):
        shutil.copyfileobj(source, target)
    unfinished.rename(piece.with_name(piece.name + _COMPRESSED))
    piece.unlink()


def remove_pieces(path: Path) -> None:
    """Remove a log and its rotated files, including unfinished compressed ones."""
    for piece in (path, *path.parent.glob(f"{path.name}.*")):
        piece.unlink(missing_ok=True)
