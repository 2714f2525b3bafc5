"""Saving images to an OCI archive that other engines load: what `moor image save` writes.

Images that a cluster builds from this host's programs are built again, so they need no engine and
keep their IDs; all others come from the cluster's own engine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.cluster.errors import ClusterError
from moorage.cluster.host import gather
from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.building import catalogue
from moorage.cluster.images.catalogue import NoPauseError
from moorage.cluster.layout import Layout
from moorage.engine.image_layout import digest
from moorage.linux.trees import make_directories, remove_tree
from moorage.wire.cri import CriClient, CriError, engine_pb
from moorage.wire.cri.reference import InvalidReferenceError, parse

_DEADLINE_S = 3600.0


class SaveError(ClusterError):
    """Images cannot be saved; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class Saved:
    """An image in an archive; `is_exact` if it has kept its ID."""

    name: str
    id: str
    is_exact: bool


async def save_archive(
    layout: Layout, endpoint: str, names: Sequence[str], target: Path, *, overwrites: bool
) -> tuple[Saved, ...]:
    """Write images to an archive, whole or not at all; return the saved images.

    `endpoint` is that of the cluster's own engine, empty if it does not run: then only images built
    from this host's programs can be saved. Raises SaveError, OSError.
    """
    if not overwrites and await asyncio.to_thread(target.exists):
        raise SaveError(f"{target} exists: give another file, or --force to replace it")
    target = await asyncio.to_thread(target.absolute)
    built = await _made_here(layout)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        if endpoint:
            saved = await _save_from_engine(layout, endpoint, names, scratch, built)
        else:
            saved = await asyncio.to_thread(_save_made, names, scratch, built)
        await asyncio.to_thread(_place, scratch, target, overwrites=overwrites)
    finally:
        scratch.unlink(missing_ok=True)
    return saved


async def _made_here(layout: Layout) -> tuple[Image, ...]:
    tools = (await gather(layout.root)).tools
    busybox, catatonit = (
        tools[name].path if name in tools else None for name in ("busybox", "catatonit")
    )
    try:
        return await catalogue(busybox, catatonit)
    except NoPauseError:
        return ()


async def _save_from_engine(
    layout: Layout, endpoint: str, names: Sequence[str], target: Path, built: Sequence[Image]
) -> tuple[Saved, ...]:
    with _known_layers(layout, built) as layers:
        request = engine_pb.SaveImagesRequest(
            images=names, archive=str(target), known_layers=str(layers)
        )
        try:
            async with CriClient(endpoint) as cri:
                reply = await cri.call(cri.engine.SaveImages, request, timeout_s=_DEADLINE_S)
        except CriError as error:
            raise SaveError(error.sentence) from error
    return tuple(Saved(image.name, image.id, image.is_exact) for image in reply.images)


@contextmanager
def _known_layers(layout: Layout, built: Sequence[Image]) -> Iterator[Path]:
    """Yield a temporary directory of the layers of the images built from this host's programs."""
    directory = layout.images / f"save-{os.getpid()}"
    make_directories(directory)
    try:
        for layer in {
            digest(content): content for image in built for content in image.layers
        }.items():
            (directory / layer[0].removeprefix("sha256:")).write_bytes(layer[1])
        yield directory
    finally:
        remove_tree(directory)


def _save_made(names: Sequence[str], target: Path, built: Sequence[Image]) -> tuple[Saved, ...]:
    """Save images without an engine. Blocks. Raises SaveError."""
    present = {image.name: image for image in built}
    chosen = {}
    for name in names:
        try:
            full = parse(name).full
        except InvalidReferenceError as error:
            raise SaveError(str(error)) from error
        if full not in present:
            raise SaveError(
                f"image {name} is not one of those built from this machine's programs "
                f"({', '.join(present) or 'there are none'}); others are saved from the cluster's "
                "own engine while it runs"
            )
        chosen[full] = present[full]
    target.write_bytes(write_archive(chosen.values()))
    return tuple(Saved(image.name, image.id, is_exact=True) for image in chosen.values())


def _place(scratch: Path, target: Path, *, overwrites: bool) -> None:
    """Rename the archive to its target. Raises SaveError if that exists, unless `overwrites`."""
    if overwrites:
        scratch.replace(target)
        return
    try:
        os.link(scratch, target)
    except FileExistsError:
        raise SaveError(f"{target} was created meanwhile: give another file, or --force") from None
