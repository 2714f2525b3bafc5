"""Building of the catalogue's images from the programs of this host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.images.archive import Image
from moorage.cluster.images.catalogue import (
    BUSYBOX_PACKAGE,
    CATATONIT_PACKAGE,
    Busybox,
    NoPauseError,
    images_from,
)
from moorage.linux.command import Answer, CommandError, must_run
from moorage.linux.program import Program, UnfitProgramError, read_program

log = Log(__name__)


async def catalogue(
    busybox: Path | None,
    catatonit: Path | None,
    *,
    read: Callable[[Path, str], Program] = read_program,
    run: Callable[..., Awaitable[Answer]] = must_run,
    build: Callable[[Busybox | None, Program | None], tuple[Image, ...]] = images_from,
) -> tuple[Image, ...]:
    """Build the catalogue's images from the programs at those paths (None: not on this host).

    Raises NoPauseError if not even the pause image can be built. Logs a missing busybox image.
    """
    complaints: list[str] = []
    try:
        pause = await _read(read, catatonit, "catatonit", CATATONIT_PACKAGE)
    except UnfitProgramError as error:
        pause = None
        complaints.append(str(error))
    try:
        program = await _read(read, busybox, "busybox", BUSYBOX_PACKAGE)
        commands = (await run([busybox or "busybox", "--list"])).text.split()
        box = Busybox(program, tuple(commands))
    except (UnfitProgramError, CommandError) as error:
        box = None
        complaints.append(str(error))
    if box is None and pause is None:
        raise NoPauseError(complaints)
    if box is None:
        log.warning("there is no busybox image", reason="; ".join(complaints))
    return await asyncio.to_thread(build, box, pause)


async def _read(
    read: Callable[[Path, str], Program], path: Path | None, name: str, package: str
) -> Program:
    if path is None:
        raise UnfitProgramError(Path(name), "is not on PATH", package)
    return await asyncio.to_thread(read, path, package)
