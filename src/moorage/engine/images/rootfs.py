"""Container root filesystems: the layers each uses, and what its container wrote.

    containers/<id>/rootfs.json   snapshotter and layers: kept until the container is removed
    containers/<id>/volumes/<n>   directories for the image's VOLUME paths
    containers/<id>/…             the snapshotter's files, the container's own among them

The record is on disk before the mount, so that after a crash every mount has a record, and no layer
in use is collected.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import EngineError, ExhaustedError, FailedError, NotFoundError
from moorage.engine.images.copying import TreeCopy, same_owner
from moorage.engine.images.image import Image
from moorage.engine.images.layers import FULL, Layers
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.images.snapshotter import Snapshotter
from moorage.engine.images.threads import in_thread
from moorage.engine.leftovers import remove_leftover
from moorage.linux.idmap import IdMappings, IdmapUnsupportedError
from moorage.linux.mounts import MountSource, is_mount_point, unmount_all
from moorage.linux.trees import disk_use, make_directory, remove_tree
from moorage.linux.trust import PRIVATE, make_private

log = Log(__name__)

_RECORD = "rootfs.json"
_VOLUMES = "volumes"
_EMPTY_MODE = 0o755
_OLD = ".old-"


class RootfsRecord(msgspec.Struct, frozen=True):
    """The snapshotter and layers of a root filesystem."""

    image: str
    snapshotter: str
    layers: tuple[str, ...]
    target: str


class RootFilesystems:
    """The root filesystems of a store, by container id."""

    def __init__(
        self,
        directory: Path,
        layers: Layers,
        snapshotters: Mapping[str, Snapshotter],
        limits: ImageLimits,
    ) -> None:
        self._directory = directory
        self._layers = layers
        self._snapshotters = snapshotters
        self._limits = limits
        self._records: dict[str, RootfsRecord] = {}

    def load(self) -> None:
        """Load the records. Blocks. Raises OSError."""
        make_private(self._directory)
        for home in self._directory.iterdir():
            if home.name.startswith("."):
                remove_leftover(home)
                continue
            try:
                content = (home / _RECORD).read_bytes()
                self._records[home.name] = msgspec.json.decode(content, type=RootfsRecord)
            except (OSError, msgspec.DecodeError):
                # Its creation was interrupted before the mount.
                remove_leftover(home)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._records)

    def layers_in_use(self) -> set[str]:
        return {layer for record in self._records.values() for layer in record.layers}

    async def mount(
        self,
        container_id: str,
        image: Image,
        target: Path,
        snapshotter: str,
        mappings: IdMappings | None,
    ) -> None:
        """Mount a container's root filesystem at `target`; mounted already is no error.

        Raises FailedError, ExhaustedError; a new container has no root filesystem then.
        """
        record = self._records.get(container_id)
        is_new = record is None
        if record is None:
            record = RootfsRecord(image.id, snapshotter, image.layers, str(target))
            self._records[container_id] = record
        try:
            await in_thread(self._mount, container_id, record, target, mappings)
        except OSError as error:
            if is_new:
                await self.remove(container_id)
            raise failure(
                f"container {container_id}: root filesystem at {target}", error
            ) from error

    async def unmount(self, container_id: str, target: Path) -> None:
        """Unmount a root filesystem; nothing mounted is no error.

        Raises FailedError.
        """
        try:
            await in_thread(unmount_all, target)
        except OSError as error:
            raise failure(
                f"container {container_id}: root filesystem at {target}", error
            ) from error

    async def create_volumes(
        self, container_id: str, contents: Sequence[Path], mappings: IdMappings | None
    ) -> tuple[Path, ...]:
        """Create a directory of the container for each path, with a copy of what is there.

        `contents` are paths without links in the mounted root filesystem; for one that does not
        exist the directory is empty and its owner root. Raises NotFoundError, FailedError,
        ExhaustedError.
        """
        self._record(container_id)
        try:
            return await in_thread(self._create_volumes, container_id, contents, mappings)
        except OSError as error:
            raise failure(f"container {container_id}: volumes of its image", error) from error

    async def hand_over(self, container_id: str, target: Path) -> tuple[MountSource, ...]:
        """Unmount a root filesystem and return what to mount in its place.

        It stays mounted, and the result is empty, where no mount source says the same. Raises
        NotFoundError, FailedError.
        """
        record = self._record(container_id)
        layers = self._layers.stack(record.layers)
        sources = self._snapshotter(record).sources(self._directory / container_id, layers)
        if sources:
            await self.unmount(container_id, target)
        return sources

    async def remove(self, container_id: str) -> None:
        """Remove a container's root filesystem and what it wrote; absent is no error.

        It must be unmounted. Raises FailedError.
        """
        if self._records.pop(container_id, None) is None:
            return
        try:
            await in_thread(remove_home, self._directory / container_id)
        except OSError as error:
            raise failure(f"container {container_id}: root filesystem", error) from error

    async def usage(self, container_id: str) -> tuple[int, int]:
        """Return bytes and inodes of what a container wrote, and of its volumes.

        Raises NotFoundError.
        """
        written = self._written(container_id, self._record(container_id))
        return await asyncio.to_thread(disk_use, written)

    async def total_usage(self) -> tuple[int, int]:
        """Return bytes and inodes of what all containers wrote, and of their volumes."""
        records = self._records.items()
        directories = [path for record in records for path in self._written(*record)]
        return await asyncio.to_thread(disk_use, directories)

    async def keep_only(self, container_ids: Collection[str]) -> None:
        """Unmount and remove the root filesystems of all other containers.

        A failure is logged; the next start retries.
        """
        for container_id in self.ids:
            if container_id in container_ids:
                continue
            try:
                await self.unmount(container_id, Path(self._record(container_id).target))
                await self.remove(container_id)
            except EngineError as error:
                log.warning("orphaned root filesystem not removed", id=container_id, reason=error)

    def _record(self, container_id: str) -> RootfsRecord:
        try:
            return self._records[container_id]
        except KeyError:
            raise NotFoundError(f"container {container_id} has no root filesystem") from None

    def _snapshotter(self, record: RootfsRecord) -> Snapshotter:
        return self._snapshotters[record.snapshotter]

    def _written(self, container_id: str, record: RootfsRecord) -> tuple[Path, Path]:
        home = self._directory / container_id
        return self._snapshotter(record).writable(home), home / _VOLUMES

    def _create_volumes(
        self, container_id: str, contents: Sequence[Path], mappings: IdMappings | None
    ) -> tuple[Path, ...]:
        directory = self._directory / container_id / _VOLUMES
        make_private(directory)
        reserve_bytes = self._limits.reserve_bytes(directory)
        volumes = []
        for number, content in enumerate(contents):
            volume = directory / str(number)
            try:
                is_present = stat.S_ISDIR(content.lstat().st_mode)
            except FileNotFoundError:
                is_present = False
            make_directory(volume, PRIVATE if is_present else _EMPTY_MODE)
            if is_present:
                # The mounted root filesystem shows the owners of the user namespace already.
                TreeCopy(same_owner, reserve_bytes=reserve_bytes).tree(
                    content, volume, closed=_below(content, contents)
                )
            elif mappings is not None:
                os.chown(volume, *mappings.root)
            volumes.append(volume)
        return tuple(volumes)

    def _mount(
        self, container_id: str, record: RootfsRecord, target: Path, mappings: IdMappings | None
    ) -> None:
        if is_mount_point(target):
            return
        home = self._directory / container_id
        if not home.is_dir():
            write_home(home, _RECORD, record)
        target.mkdir(parents=True, exist_ok=True)
        layers = self._layers.stack(record.layers)
        self._snapshotter(record).mount(home, layers, target, mappings)


def _below(directory: Path, paths: Sequence[Path]) -> frozenset[tuple[str, ...]]:
    """Return which paths are below a directory, by their names from there.

    A volume in a volume covers what is there: copied into both, an image with volumes below each
    other would take its size many times.
    """
    return frozenset(
        path.relative_to(directory).parts
        for path in paths
        if path != directory and path.is_relative_to(directory)
    )


def write_home(home: Path, name: str, record: msgspec.Struct) -> None:
    """Create a directory with its record. Blocks. Raises OSError."""
    home.mkdir(mode=0o700)
    scratch = home / f".{name}.new"
    # Not synced: after a power loss nothing is mounted on it.
    scratch.write_bytes(msgspec.json.encode(record))
    scratch.rename(home / name)


def remove_home(home: Path) -> None:
    """Remove a directory with its record atomically, by a rename first. Blocks. Raises OSError."""
    doomed = home.with_name(f"{_OLD}{secrets.token_hex(8)}")
    try:
        home.rename(doomed)
    except FileNotFoundError:
        return
    remove_tree(doomed)


def failure(what: str, error: OSError) -> EngineError:
    """Return the engine's error for an OSError."""
    why = error.strerror or str(error)
    about = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""
    if error.errno in FULL:
        return ExhaustedError(f"{what}: {why}{about}; free disk space")
    if isinstance(error, IdmapUnsupportedError):
        return FailedError(f"{what}: {why}{about}; run the pod without a user namespace")
    return FailedError(f"{what}: {why}{about}")
