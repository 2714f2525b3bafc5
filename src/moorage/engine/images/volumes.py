"""Image volumes: images mounted read-only, whole or in part.

    volumes/<hash of the target>/volume.json   its target and its layers

Source: CRI Mount.image and image_sub_path; the kubelet matches `ImageVolumeMountFailed`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

import msgspec

from moorage.engine.errors import FailedError
from moorage.engine.images.image import Image
from moorage.engine.images.layers import Layers
from moorage.engine.images.rootfs import failure, remove_home, write_home
from moorage.engine.images.snapshotter import Snapshotter
from moorage.engine.images.threads import in_thread
from moorage.engine.leftovers import remove_leftover
from moorage.linux.mounts import bind, is_mount_point, unmount_all
from moorage.linux.rooted_path import open_in_root
from moorage.linux.trust import make_private

_RECORD = "volume.json"
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_REFUSED = "ImageVolumeMountFailed"


class VolumeRecord(msgspec.Struct, frozen=True):
    """A mounted image."""

    target: str
    image: str
    layers: tuple[str, ...]


class ImageVolumes:
    """The image volumes of a store, by mount point."""

    def __init__(
        self, directory: Path, stages: Path, layers: Layers, snapshotter: Snapshotter
    ) -> None:
        """`stages` is a directory for short-lived mounts."""
        self._directory = directory
        self._stages = stages
        self._layers = layers
        self._snapshotter = snapshotter
        self._records: dict[Path, VolumeRecord] = {}

    def load(self) -> None:
        """Load the records, and drop those that are not mounted any more. Blocks. Raises
        OSError.
        """
        make_private(self._directory)
        make_private(self._stages)
        for stage in self._stages.iterdir():
            unmount_all(stage)
            # Empty directories only: a mounted tree must not be removed.
            for inner in stage.iterdir():
                unmount_all(inner)
                inner.rmdir()
            stage.rmdir()
        for home in self._directory.iterdir():
            record = None
            try:
                record = msgspec.json.decode((home / _RECORD).read_bytes(), type=VolumeRecord)
            except (OSError, msgspec.DecodeError):
                # Its creation was interrupted before the mount.
                record = None
            if record is not None and is_mount_point(Path(record.target)):
                self._records[Path(record.target)] = record
            else:
                remove_leftover(home)

    def layers_in_use(self) -> set[str]:
        return {layer for record in self._records.values() for layer in record.layers}

    async def mount(self, image: Image, target: Path, sub_path: str) -> None:
        """Mount an image, or the file or directory `sub_path` of it, at `target`.

        Idempotent. Raises FailedError, ExhaustedError; nothing is mounted then.
        """
        if target in self._records:
            return
        record = VolumeRecord(str(target), image.id, image.layers)
        self._records[target] = record
        try:
            await in_thread(self._mount, image, record, target, sub_path.strip("/"))
        except OSError as error:
            await self.unmount(target)
            if sub_path and error.errno in _ABSENT:
                raise FailedError(
                    f"{_REFUSED}: image {image.name} has no {sub_path!r} to mount at {target}"
                ) from error
            raise failure(f"{_REFUSED}: image {image.name} at {target}", error) from error

    async def unmount(self, target: Path) -> None:
        """Unmount an image volume; nothing mounted is no error. Raises FailedError."""
        try:
            await in_thread(unmount_all, target)
            if self._records.pop(target, None) is not None:
                await in_thread(remove_home, self._directory / _key(target))
        except OSError as error:
            raise failure(f"image volume at {target}", error) from error

    def _mount(self, image: Image, record: VolumeRecord, target: Path, sub_path: str) -> None:
        home = self._directory / _key(target)
        if not home.is_dir():
            write_home(home, _RECORD, record)
        layers = self._layers.stack(image.layers)
        if not sub_path:
            target.mkdir(parents=True, exist_ok=True)
            self._snapshotter.mount_read_only(home, layers, target)
            return
        stage = self._stages / _key(target)
        stage.mkdir(exist_ok=True)
        try:
            self._snapshotter.mount_read_only(home, layers, stage)
            _bind_part(stage, sub_path, target)
        finally:
            # The bind mount of the part keeps the file system alive.
            unmount_all(stage)
            stage.rmdir()


def _bind_part(stage: Path, sub_path: str, target: Path) -> None:
    part = open_in_root(stage, sub_path)
    try:
        if stat.S_ISDIR(os.fstat(part).st_mode):
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        bind(Path(f"/proc/self/fd/{part}"), target, is_read_only=True)
    finally:
        os.close(part)


def _key(target: Path) -> str:
    return hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
