"""Import of the catalogue's images into the cluster's engine.

An image that the engine already has, with the same name and content, is skipped, so only a first
start and a changed package take time. All missing images are loaded from one archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from moorage.cluster.images.archive import Image, write_archive
from moorage.engine.errors import NotFoundError
from moorage.engine.images.store import ImageStore


async def import_images(images: Sequence[Image], store: ImageStore, scratch: Path) -> None:
    """Load those of the images that a store lacks.

    `scratch` is the path of the archive, which is removed at the end. Raises EngineError, OSError.
    """
    missing = [image for image in images if not _is_there(image, store)]
    if not missing:
        return
    try:
        await asyncio.to_thread(_write, scratch, missing)
        await store.load(scratch)
    finally:
        await asyncio.to_thread(scratch.unlink, missing_ok=True)


def _is_there(image: Image, store: ImageStore) -> bool:
    try:
        return store.find(image.name).id == image.id
    except NotFoundError:
        return False


def _write(path: Path, images: Sequence[Image]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_archive(images))
