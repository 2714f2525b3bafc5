"""Image garbage collection: removes images when their disk runs full, least recently used first.

The selection is pure. Images of containers, pinned images and the sandbox image are kept. Source:
kubelet `image_gc_manager.go`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.node.options import ImageGarbageOptions
from moorage.node.runtime.engine import Engine
from moorage.wire.cri import CriError, pb

Tidy = Callable[[Collection[str], datetime], Awaitable[None]]
"""Called with the IDs of the images on the node and the time of that listing."""

log = Log(__name__)

_EVERYTHING_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Usage of the disk that holds the images."""

    total_bytes: int
    free_bytes: int

    @property
    def percent(self) -> int:
        """Used percentage of the disk, rounded up."""
        return 100 - 100 * self.free_bytes // self.total_bytes if self.total_bytes else 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image that may be removed; `used_s` is when it was last in use, in monotonic seconds."""

    id: str
    size_bytes: int
    used_s: float
    seen_s: float


def bytes_to_free(disk: DiskUse, options: ImageGarbageOptions) -> int:
    """Return how many bytes to free; 0 while the disk is below the high threshold."""
    if disk.percent < options.high_percent:
        return 0
    return disk.total_bytes * (100 - options.low_percent) // 100 - disk.free_bytes


def chosen(
    candidates: Iterable[Candidate], wanted_bytes: int, minimum_age_s: float, now_s: float
) -> list[Candidate]:
    """Return the images to remove, least recently used first, until enough is freed."""
    chosen: list[Candidate] = []
    freed = 0
    for candidate in sorted(candidates, key=lambda image: (image.used_s, image.seen_s)):
        if freed >= wanted_bytes:
            break
        if now_s - candidate.seen_s >= minimum_age_s:
            chosen.append(candidate)
            freed += candidate.size_bytes
    return chosen


class ImageCollector:
    """Keeps the images' disk below its threshold. `run()` blocks until cancelled.

    `tidy` is called in each pass with the images on the node.
    """

    def __init__(
        self, engine: Engine, options: ImageGarbageOptions, clock: Clock, tidy: Tidy
    ) -> None:
        self._tidy = tidy
        self._engine = engine
        self._options = options
        self._clock = clock
        self._seen_s: dict[str, float] = {}
        self._used_s: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.collect()
            except (CriError, OSError) as error:
                log.warning("image garbage not removed", error=error)
            await self._clock.sleep(self._options.period_s)

    async def collect(self) -> None:
        """Check images and disk, and remove what is needed. Raises CriError, OSError."""
        now_s = self._clock.monotonic()
        looked = self._clock.now()
        images = await self._engine.images()
        used = await self._used(images)
        self._note(images, used, now_s)
        await self._tidy({image.id for image in images}, looked)
        wanted = bytes_to_free(await self._disk(), self._options)
        if wanted <= 0:
            return
        freed = await self._free(images, used, wanted, now_s)
        if freed < wanted:
            log.warning("image disk stays full", wanted_bytes=wanted, freed_bytes=freed)

    async def remove_unused(self) -> None:
        """Remove every image that is not used and old enough. Raises CriError, OSError.

        Source: kubelet `DeleteUnusedImages`.
        """
        now_s = self._clock.monotonic()
        images = await self._engine.images()
        used = await self._used(images)
        self._note(images, used, now_s)
        await self._free(images, used, _EVERYTHING_BYTES, now_s)

    async def _free(
        self, images: Sequence[pb.Image], used: Collection[str], wanted: int, now_s: float
    ) -> int:
        """Remove images until so many bytes are freed; return how many were."""
        candidates = [
            Candidate(image.id, image.size, self._used_s.get(image.id, 0.0), self._seen_s[image.id])
            for image in images
            if image.id not in used and not image.pinned
        ]
        going = chosen(candidates, wanted, self._options.minimum_age_s, now_s)
        freed = sum(image.size_bytes for image in going)
        log.info("images removed", wanted_bytes=wanted, freed_bytes=freed, count=len(going))
        for image in going:
            await self._engine.remove_image(image.id)
        return freed

    def _note(self, images: Sequence[pb.Image], used: Collection[str], now_s: float) -> None:
        present = {image.id for image in images}
        self._seen_s = {key: self._seen_s.get(key, now_s) for key in present}
        self._used_s = {key: value for key, value in self._used_s.items() if key in present}
        self._used_s |= dict.fromkeys((key for key in used if key in present), now_s)

    async def _used(self, images: Iterable[pb.Image]) -> set[str]:
        """Return the IDs of the images in use."""
        names: set[str] = set()
        for container in await self._engine.containers():
            names |= {container.image_ref, container.image_id, container.image.image}
        sandbox = sandbox_image(await self._engine.verbose_info())
        return {
            image.id
            for image in images
            if names & {image.id, *image.repo_tags, *image.repo_digests}
            or any(_is_same_name(tag, sandbox) for tag in image.repo_tags)
        }

    async def place(self) -> Path | None:
        """Return a directory on the images' file system, None if the engine reports none.

        Raises CriError.
        """
        reply = await self._engine.image_filesystems()
        if not reply.image_filesystems:
            return None
        return Path(reply.image_filesystems[0].fs_id.mountpoint)

    async def _disk(self) -> DiskUse:
        path = await self.place()
        if path is None:
            return DiskUse(0, 0)
        status = await asyncio.to_thread(os.statvfs, path)
        return DiskUse(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def sandbox_image(info: Mapping[str, str]) -> str:
    """Return the sandbox image, if the engine reports it: engines before CRI 1.24 do not pin it."""
    try:
        config = msgspec.json.decode(info.get("config", "{}"))
    except (msgspec.DecodeError, RecursionError):
        return ""
    image = config.get("sandboxImage", "") if isinstance(config, dict) else ""
    return image if isinstance(image, str) else ""


def _is_same_name(tag: str, name: str) -> bool:
    return bool(name) and (tag == name or tag.endswith(f"/{name}"))
