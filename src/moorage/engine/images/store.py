"""Image store: pull, load, find, remove and mount images.

    registry ── Puller ──► blobs ── Layers ──► trees ── Snapshotter ──► mounts
                  ▲                       ▲
                index of images ─────┘   root filesystems, volumes (what keeps layers)

Blobs are deleted once they are unpacked. A layer is deleted when no image, container, volume or
pull needs it. Decision: docs/decisions/018-images-by-skopeo.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from moorage.api.logs import Log
from moorage.engine.errors import FailedError, InvalidError, NotFoundError
from moorage.engine.images.catalogue import Catalogue
from moorage.engine.images.image import Image
from moorage.engine.images.importer import ImageImporter, Loaded
from moorage.engine.images.index import IndexFiles
from moorage.engine.images.layers import Layers
from moorage.engine.images.manifest import ImageLimits, Platform
from moorage.engine.images.rootfs import RootFilesystems
from moorage.engine.images.saving import SaveableImage, SavedImage, save_images
from moorage.engine.images.single_flight import SingleFlight
from moorage.engine.images.skopeo import Credentials, Skopeo
from moorage.engine.images.snapshotter import Native, Overlayfs, Snapshotter
from moorage.engine.images.threads import in_thread
from moorage.engine.images.usage import FilesystemUsage, StoreUsage
from moorage.engine.images.volumes import ImageVolumes
from moorage.linux.idmap import IdMappings
from moorage.linux.mounts import MountSource, supports_overlay
from moorage.linux.trust import make_private
from moorage.wire.cri.reference import InvalidReferenceError, Reference, parse

log = Log(__name__)

OVERLAYFS, NATIVE = "overlayfs", "native"
_STALL_S = 300.0


@dataclass(frozen=True, slots=True)
class ImagePaths:
    """The directories of a store; `data` survives a reboot, `run` need not."""

    data: Path
    run: Path


class ImageStore:
    """The store over its two directories, which no other process may write."""

    def __init__(
        self,
        paths: ImagePaths,
        *,
        skopeo: Path = Path("skopeo"),
        snapshotter: str = "",
        mirrors: Mapping[str, str] | None = None,
        platform: Platform | None = None,
        pinned: Collection[str] = (),
        stall_s: float = _STALL_S,
        limits: ImageLimits | None = None,
    ) -> None:
        """`snapshotter` is overlayfs or native, detected when empty; `mirrors` maps a registry to a
        mirror's URL; `pinned` are images that kubelets must not collect; a pull without data for
        `stall_s` seconds fails.

        Raises InvalidError for invalid image names.
        """
        if snapshotter not in ("", OVERLAYFS, NATIVE):
            raise InvalidError(f"snapshotter {snapshotter!r} is neither overlayfs nor native")
        self._paths = paths
        self._pinned = {_reference(reference).full for reference in pinned}
        self._chosen = snapshotter
        self._limits = limits or ImageLimits()
        self._skopeo = Skopeo(skopeo, paths.run, dict(mirrors or {}), stall_s)
        self._platform = platform or Platform.of_this_machine()

    async def __aenter__(self) -> Self:
        """Load the store and remove incomplete entries. Raises OSError."""
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            await asyncio.to_thread(self._prepare)
            self._build(tasks)
            await asyncio.to_thread(self._load)
            await self._catalogue.collect()
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store. The callers must have ended their pulls. Mounts stay."""
        await self._exit.aclose()

    def _prepare(self) -> None:
        for directory in (self._paths.data, self._paths.run):
            make_private(directory)
        self._can_overlay = supports_overlay(self._paths.data)
        self._chosen = self._chosen or (OVERLAYFS if self._can_overlay else NATIVE)

    def _build(self, tasks: asyncio.TaskGroup) -> None:
        data, run = self._paths.data, self._paths.run
        stages = run / "stages"
        snapshotters: dict[str, Snapshotter] = {OVERLAYFS: Overlayfs(stages), NATIVE: Native()}
        layers = Layers(
            data / "layers", SingleFlight(tasks), is_marked=self._can_overlay, limits=self._limits
        )
        self._rootfs = RootFilesystems(data / "containers", layers, snapshotters, self._limits)
        self._volumes = ImageVolumes(data / "volumes", stages, layers, snapshotters[self._chosen])
        self._catalogue = Catalogue(
            IndexFiles(data, self._pinned),
            layers,
            lambda: self._rootfs.layers_in_use() | self._volumes.layers_in_use(),
        )
        self._importer = ImageImporter(
            data / "ingest", run, self._catalogue, self._skopeo, self._platform, SingleFlight(tasks)
        )

    def _load(self) -> None:
        self._importer.load_directories()
        self._catalogue.load()
        self._rootfs.load()
        self._volumes.load()

    @property
    def snapshotter(self) -> str:
        """The name of the default snapshotter."""
        return self._chosen

    def find(self, reference: str) -> Image:
        """Return the image of that id (or id prefix), tag or digest. Raises NotFoundError."""
        return self._catalogue.find(reference)

    def find_for(self, reference: str, platform: str) -> Image:
        """Return the image as `find`, but none that was chosen from an index for another platform.

        `platform` is `OS/ARCHITECTURE`, empty for the host's. Raises NotFoundError.
        """
        wanted = Platform.parse(platform) if platform else self._platform
        return self._catalogue.find(reference, wanted.names)

    def all(self) -> tuple[Image, ...]:
        return self._catalogue.all()

    async def configuration(self, image: Image) -> bytes:
        """Return an image's configuration blob. Raises NotFoundError when it was removed
        meanwhile.
        """
        return await self._catalogue.configuration(image)

    async def pull(
        self,
        reference: str,
        credentials: Credentials | None = None,
        platform: str = "",
    ) -> Image:
        """Pull an image with all its layers. Returns it as the registry serves it now.

        `platform` is `OS/ARCHITECTURE`, empty for the host's. Concurrent calls with the same
        arguments share one pull. Raises InvalidError,
        NotFoundError, FailedError, ExhaustedError.
        """
        parsed = _reference(reference)
        image = await self._importer.pull(
            parsed, credentials, Platform.parse(platform) if platform else None
        )
        log.info("image pulled", image=parsed.full, id=image.id)
        return image

    async def load(self, archive: Path) -> tuple[Image, ...]:
        """Load all images of an OCI or docker archive, under their names there.

        Raises FailedError, ExhaustedError.
        """
        return tuple(image.image for image in await self._load_archive(archive))

    async def load_names(self, archive: Path) -> tuple[str, ...]:
        """Load all images of an archive. Returns their names there, an id for one without.

        Raises FailedError, ExhaustedError.
        """
        loaded = await self._load_archive(archive)
        return tuple(dict.fromkeys(name for image in loaded for name in image.names))

    async def _load_archive(self, archive: Path) -> tuple[Loaded, ...]:
        loaded = await self._importer.load(archive)
        for entry in loaded:
            log.info("image loaded", image=entry.image.name, id=entry.image.id)
        return loaded

    async def save(
        self, references: Sequence[str], target: Path, known: Path | None = None
    ) -> tuple[SavedImage, ...]:
        """Write images to a new OCI archive, under the requested names.

        `known` is a directory of layer blobs, named by the digits of their diff-ids. Raises
        NotFoundError, FailedError when the file exists or cannot be written.
        """
        images = [self.find(reference) for reference in references]
        layers = {layer for image in images for layer in image.layers}
        with self._catalogue.holding(layers):
            saveable = [
                SaveableImage(
                    name=_saved_name(reference, image),
                    configuration=await self.configuration(image),
                    layers=tuple(
                        (layer, self._catalogue.layers.path(layer)) for layer in image.layers
                    ),
                )
                for reference, image in zip(references, images, strict=True)
            ]
            try:
                return await in_thread(_save, saveable, target, known)
            except OSError as error:
                raise FailedError(f"images cannot be saved to {target}: {error}") from error

    async def remove(self, reference: str) -> None:
        """Remove an image under all its names; absent is no error.

        Layers that containers or volumes use stay until those are removed. Raises FailedError.
        """
        try:
            image = self.find(reference)
        except NotFoundError:
            return
        await self._catalogue.remove(image)
        log.info("image removed", image=image.name, id=image.id)

    async def usage(self) -> StoreUsage:
        """Return the disk usage of images and of what containers wrote."""
        images = self._catalogue.layers.total
        containers = await self._rootfs.total_usage()
        now_ns = time.time_ns()
        data = self._paths.data
        return StoreUsage(
            FilesystemUsage(now_ns, data, *images),
            FilesystemUsage(now_ns, data, *containers),
        )

    async def mount_rootfs(
        self,
        container_id: str,
        image: Image,
        target: Path,
        *,
        id_mappings: IdMappings | None = None,
        snapshotter: str = "",
    ) -> None:
        """Mount a container's root filesystem at `target`, created at the first call.

        Idempotent. With mappings, owners are those of the user namespace. Raises FailedError,
        ExhaustedError. Budget: 2 ms.
        """
        name = snapshotter or self._chosen
        await self._rootfs.mount(container_id, image, target, name, id_mappings)

    async def create_volumes(
        self,
        container_id: str,
        contents: Sequence[Path],
        *,
        id_mappings: IdMappings | None = None,
    ) -> tuple[Path, ...]:
        """Create a container's directories for the paths that its image declares as volumes.

        Each has a copy of a path of the mounted root filesystem, without links in it; the container
        owns it until `remove_rootfs`. Raises NotFoundError, FailedError, ExhaustedError.
        """
        return await self._rootfs.create_volumes(container_id, contents, id_mappings)

    async def unmount_rootfs(self, container_id: str, target: Path) -> None:
        """Unmount a root filesystem; what the container wrote stays. Raises FailedError."""
        await self._rootfs.unmount(container_id, target)

    async def hand_over_rootfs(self, container_id: str, target: Path) -> tuple[MountSource, ...]:
        """Unmount a root filesystem for a runtime that mounts it; return what that mounts.

        Empty where it stays mounted. Raises NotFoundError, FailedError.
        """
        return await self._rootfs.hand_over(container_id, target)

    async def remove_rootfs(self, container_id: str) -> None:
        """Remove what the container wrote; it must be unmounted. Raises FailedError."""
        await self._rootfs.remove(container_id)
        await self._catalogue.collect()

    async def writable_usage(self, container_id: str) -> tuple[int, int]:
        """Return bytes and inodes of what a container wrote, and of its volumes.

        Raises NotFoundError.
        """
        return await self._rootfs.usage(container_id)

    async def mount_image(self, image: Image, target: Path, *, sub_path: str = "") -> None:
        """Mount an image, or a file or directory of it, read-only at `target`.

        Idempotent. Raises FailedError whose text begins with `ImageVolumeMountFailed`.
        """
        await self._volumes.mount(image, target, sub_path)

    async def unmount_image(self, target: Path) -> None:
        """Unmount an image volume; nothing mounted is no error. Raises FailedError."""
        await self._volumes.unmount(target)
        await self._catalogue.collect()

    async def recover(self, known_container_ids: Collection[str]) -> None:
        """Remove the root filesystems of unknown containers, and unused layers.

        Call it once at start.
        """
        await self._rootfs.keep_only(known_container_ids)
        await self._catalogue.collect()


def _saved_name(reference: str, image: Image) -> str:
    """Return the requested full name; for an id, the image's own name."""
    named = (*image.tags, *image.digests)
    try:
        full = parse(reference).full
    except InvalidReferenceError:
        return image.name
    return full if full in named else image.name


def _save(
    images: Sequence[SaveableImage], target: Path, known_layers: Path | None
) -> tuple[SavedImage, ...]:
    """Write the archive; removes it on failure. Blocks. Raises OSError."""
    with target.open("xb") as file:
        try:
            # Beside the archive: the store's scratch directory may be in memory.
            return save_images(images, file, target.parent, known_layers)
        except BaseException:
            target.unlink()
            raise


def _reference(name: str) -> Reference:
    try:
        return parse(name)
    except InvalidReferenceError as error:
        raise InvalidError(str(error)) from error
