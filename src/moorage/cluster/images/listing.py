"""Images of a cluster's engine: listed and removed by CRI calls, which any engine serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from moorage.cluster.errors import ClusterError
from moorage.cluster.images.archive import Image, write_archive
from moorage.engine.errors import NotFoundError
from moorage.engine.images.store import ImageStore
from moorage.wire.cri import CriClient, CriError, pb

# Import of the catalogue's images into the cluster's engine.
#
# An image that the engine already has, with the same name and content, is skipped, so only a first
# start and a changed package take time. All missing images are loaded from one archive.


async def import_images(
    images: Sequence[Image],
    store: ImageStore,
    scratch: Path,
    pack: Callable[[Sequence[Image]], bytes] = write_archive,
) -> None:
    """Load those of the images that a store lacks.

    `scratch` is the path of the archive, which is removed at the end. Raises EngineError, OSError.
    """
    missing = [image for image in images if not _is_there(image, store)]
    if not missing:
        return
    try:
        await asyncio.to_thread(_write, scratch, missing, pack)
        await store.load(scratch)
    finally:
        await asyncio.to_thread(scratch.unlink, missing_ok=True)


def _is_there(image: Image, store: ImageStore) -> bool:
    try:
        return store.find(image.name).id == image.id
    except NotFoundError:
        return False


def _write(path: Path, images: Sequence[Image], pack: Callable[[Sequence[Image]], bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(images))


_REMOVE_DEADLINE_S = 120.0


class ImageError(ClusterError):
    """An image does not exist, or the engine cannot list or remove images."""


class ListedImage(msgspec.Struct, frozen=True):
    """An image as the engine lists it. `size_bytes` is the engine's figure."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size_bytes: int
    pinned: bool


async def list_images(endpoint: str) -> tuple[ListedImage, ...]:
    """Return the engine's images, sorted by their first name. Raises ImageError."""
    try:
        async with CriClient(endpoint) as cri:
            reply = await cri.call(cri.images.ListImages, pb.ListImagesRequest())
    except CriError as error:
        raise ImageError(f"images cannot be listed: {error.sentence}") from error
    listed = (
        ListedImage(
            image.id, tuple(image.repo_tags), tuple(image.repo_digests), image.size, image.pinned
        )
        for image in reply.images
    )
    return tuple(sorted(listed, key=lambda image: (image.tags or image.digests or (image.id,))[0]))


async def remove_image(endpoint: str, name: str) -> tuple[str, ...]:
    """Remove an image; return all names it had, or its ID if it had none.

    Containers that use it keep running; its layers are removed with the last of them. Raises
    ImageError if there is no such image, or the engine does not remove it.
    """
    spec = pb.ImageSpec(image=name)
    try:
        async with CriClient(endpoint) as cri:
            status = await cri.call(cri.images.ImageStatus, pb.ImageStatusRequest(image=spec))
            if not status.image.id:
                raise ImageError(f"there is no image {name}; `moor image list` lists them")
            request = pb.RemoveImageRequest(image=spec)
            await cri.call(cri.images.RemoveImage, request, timeout_s=_REMOVE_DEADLINE_S)
    except CriError as error:
        raise ImageError(f"image {name} cannot be removed: {error.sentence}") from error
    return tuple(status.image.repo_tags) or (status.image.id,)
