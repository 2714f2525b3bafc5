"""Import of the catalogue's images into the cluster's engine.

An image that the engine already has, with the same name and content, is skipped, so only a first
start and a changed package take time. All missing images are loaded from one archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.catalogue import (
    BUSYBOX_PACKAGE,
    CATATONIT_PACKAGE,
    Busybox,
    NoPauseError,
    images_from,
)
from moorage.engine import ImageStore, NotFoundError
from moorage.linux.command import CommandError, must_run
from moorage.linux.program import Program, UnfitProgramError, read_program

log = Log(__name__)


async def catalogue(busybox: Path | None, catatonit: Path | None) -> tuple[Image, ...]:
    """Build the catalogue's images from the programs at those paths (None: not on this host).

    Raises NoPauseError if not even the pause image can be built. Logs a missing busybox image.
    """
    complaints: list[str] = []
    try:
        pause = await _read(catatonit, "catatonit", CATATONIT_PACKAGE)
    except UnfitProgramError as error:
        pause = None
        complaints.append(str(error))
    try:
        program = await _read(busybox, "busybox", BUSYBOX_PACKAGE)
        commands = (await must_run([busybox or "busybox", "--list"])).text.split()
        box = Busybox(program, tuple(commands))
    except (UnfitProgramError, CommandError) as error:
        box = None
        complaints.append(str(error))
    if box is None and pause is None:
        raise NoPauseError(complaints)
    if box is None:
        log.warning("there is no busybox image", reason="; ".join(complaints))
    return await asyncio.to_thread(images_from, box, pause)


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


async def _read(path: Path | None, name: str, package: str) -> Program:
    if path is None:
        raise UnfitProgramError(Path(name), "is not on PATH", package)
    return await asyncio.to_thread(read_program, path, package)


def _write(path: Path, images: Sequence[Image]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_archive(images))
