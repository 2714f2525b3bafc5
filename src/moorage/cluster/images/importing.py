"""Gives the images of the catalogue to the private engine.

What the engine already has under the same name with the same content is skipped, so only a first
start and a changed package cost anything. All missing ones go in one archive, in one run of `ctr`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.catalogue import (
    BUSYBOX_PACKAGE,
    CATATONIT_PACKAGE,
    Busybox,
    NoPauseError,
    images_from,
)
from moorage.cri import CriClient, pb
from moorage.handlers.command import CommandError, must_run
from moorage.linux.program import Program, UnfitProgramError, read_program

NAMESPACE = "k8s.io"
"""The containerd namespace in which the CRI keeps its images."""

_IMPORT_DEADLINE_S = 60.0
_SEEN_DEADLINE_S = 10.0
_SEEN_POLL_S = 0.005

log = Log(__name__)


class ImportFailedError(Exception):
    """The engine took an archive, and yet does not show an image of it."""


async def catalogue(busybox: Path | None, catatonit: Path | None) -> tuple[Image, ...]:
    """The catalogue's images, made from the programs at those paths (None: not on this machine).

    Raises NoPauseError when they don't even give the sandboxes' image.
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


async def import_images(
    images: Sequence[Image],
    *,
    cri: CriClient,
    socket: Path,
    ctr: Path,
    scratch: Path,
    snapshotter: str,
    clock: Clock,
) -> tuple[str, ...]:
    """Import what the engine at that socket lacks; the names of the images that were imported.

    Returns when the CRI shows them. `scratch` is a folder for the archive, which is removed again.
    Raises CommandError, CriError and ImportFailedError.
    """
    missing = [image for image in images if not await _is_there(image, cri)]
    if not missing:
        return ()
    archive = scratch / "import.tar"
    try:
        await asyncio.to_thread(_write, archive, missing)
        await must_run(
            [ctr, "--address", socket, "--namespace", NAMESPACE, "images", "import",
             "--snapshotter", snapshotter, archive],
            deadline_s=_IMPORT_DEADLINE_S,
        )  # fmt: skip
    finally:
        archive.unlink(missing_ok=True)
    for image in missing:
        await _until_seen(image, cri, clock)
    names = tuple(image.name for image in missing)
    log.info("imported images", images=",".join(names))
    return names


async def _until_seen(image: Image, cri: CriClient, clock: Clock) -> None:
    """The CRI hears of new images by events, some milliseconds after the import."""
    deadline = clock.monotonic() + _SEEN_DEADLINE_S
    while not await _is_there(image, cri):
        if clock.monotonic() > deadline:
            raise ImportFailedError(
                f"{image.name} was imported, but the engine does not show it after "
                f"{_SEEN_DEADLINE_S:g} s; its log says why"
            )
        await clock.sleep(_SEEN_POLL_S)


async def _is_there(image: Image, cri: CriClient) -> bool:
    request = pb.ImageStatusRequest(image=pb.ImageSpec(image=image.name))
    reply = await cri.call(cri.images.ImageStatus, request)
    return reply.image.id == image.id


async def _read(path: Path | None, name: str, package: str) -> Program:
    if path is None:
        raise UnfitProgramError(Path(name), "is not on PATH", package)
    return await asyncio.to_thread(read_program, path, package)


def _write(path: Path, images: Sequence[Image]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_archive(images))
