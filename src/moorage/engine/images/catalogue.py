"""Image catalogue: the images of a store, their index and layers, and garbage collection.

    install: layers unpacked → configuration and index written, in one turn → found by name
    collect: removes layers that no image, mount or running work needs

Threads that change the index take turns, so that no cancellation separates the file from its copy
in memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from moorage.engine.errors import FailedError, NotFoundError
from moorage.engine.images import index
from moorage.engine.images.image import Image, MalformedImageError
from moorage.engine.images.layers import Blob, Layers
from moorage.engine.images.manifest import digest_of, in_words
from moorage.engine.images.rootfs import failure
from moorage.engine.images.threads import in_thread
from moorage.engine.leftovers import remove_leftover

_UNPACK_AT_ONCE = 4


class Catalogue:
    """The images of a store."""

    def __init__(
        self, files: index.IndexFiles, layers: Layers, in_use: Callable[[], set[str]]
    ) -> None:
        """`in_use` returns the layers that mounts use."""
        self._files = files
        self.layers = layers
        self._in_use = in_use
        self._images: Mapping[str, Image] = {}
        self._held: Counter[str] = Counter()
        self._turn = threading.Lock()
        self._slots = asyncio.Semaphore(_UNPACK_AT_ONCE)

    def load(self) -> None:
        """Load the index and layers. Blocks. Raises OSError."""
        self.layers.load()
        self._images = self._files.load(self.layers)

    def find(self, reference: str, platforms: Collection[str] = ()) -> Image:
        """Return the image of that id (or id prefix), tag or digest. Raises NotFoundError.

        With platforms, a name does not find an image that was chosen for another.
        """
        return index.find(self._images, reference, platforms)

    def all(self) -> tuple[Image, ...]:
        return tuple(self._images.values())

    async def configuration(self, image: Image) -> bytes:
        """Return an image's configuration blob. Raises NotFoundError when it was removed
        meanwhile.
        """
        try:
            return await asyncio.to_thread(self._files.configuration, image.id)
        except FileNotFoundError as error:
            raise NotFoundError(f"image {image.name} was removed") from error

    @contextmanager
    def holding(self, layers: Collection[str]) -> Iterator[None]:
        """Keep these layers, present or not, from being collected while the block lasts."""
        self._held.update(layers)
        try:
            yield
        finally:
            self._held.subtract(layers)
            self._held += Counter()

    async def install(
        self,
        configuration: bytes,
        blobs: Sequence[tuple[str, Blob]],
        tags: Sequence[str],
        digests: Sequence[str],
        platform: str = "",
    ) -> Image:
        """Install an image under these names; `blobs` correspond to its diff-ids.

        `platform` is the one that was chosen from an index, or that of an artifact.

        Raises EngineError, MalformedImageError; the names are unchanged then, and the caller
        collects the unpacked layers.
        """
        image_id = digest_of(configuration)
        name = next(iter((*tags, *digests)), image_id)
        diff_ids = [diff_id for diff_id, _ in blobs]
        with self.holding(diff_ids):
            await self._unpack(blobs, name)
            size_bytes = self.layers.size(diff_ids)[0] + len(configuration)
            image = self._files.image(configuration, image_id, tags, digests, size_bytes, platform)
            return await self._commit(image, configuration)

    async def rename(self, image: Image, tags: Sequence[str], digests: Sequence[str]) -> Image:
        """Give an existing image more names. Raises NotFoundError, EngineError."""
        with self.holding(image.layers):
            configuration = await self.configuration(image)
            named = self._files.image(
                configuration, image.id, tags, digests, image.size_bytes, image.platform
            )
            return await self._commit(named, configuration)

    async def remove(self, image: Image) -> None:
        """Remove an image under all its names. Raises EngineError."""
        try:
            await in_thread(self._drop, image.id)
        except OSError as error:
            raise failure(f"image {image.name}", error) from error
        await self.collect()

    async def collect(self) -> None:
        """Delete the unused layers. Raises EngineError."""
        needed = {layer for image in self._images.values() for layer in image.layers}
        needed |= self._in_use() | set(self._held)
        try:
            doomed = self.layers.discard(needed)
        except OSError as error:
            raise failure("unused layers", error) from error
        for directory in doomed:
            # The next start removes it; the caller of a removal cannot act on the failure.
            await in_thread(remove_leftover, directory)

    async def _unpack(self, blobs: Sequence[tuple[str, Blob]], name: str) -> None:
        limits = self.layers.limits
        try:
            limits.check_layers(len(blobs))
        except MalformedImageError as error:
            raise FailedError(f'failed to unpack image "{name}": {error}') from error
        diff_ids = [diff_id for diff_id, _ in blobs]

        async def one(diff_id: str, blob: Blob) -> None:
            async with self._slots:
                await self.layers.add(diff_id, blob, name, diff_ids)
            size_bytes, _ = self.layers.size(diff_ids)
            # Layers are unpacked concurrently, each within what the others left of the limits.
            if size_bytes > limits.unpacked_bytes:
                raise FailedError(
                    f'failed to unpack image "{name}": it unpacks to more than '
                    f"{in_words(limits.unpacked_bytes)}, which is the engine's limit: use a "
                    "smaller image, or raise it with --image-limit"
                )

        try:
            async with asyncio.TaskGroup() as tasks:
                for diff_id, blob in blobs:
                    if diff_id not in self.layers:
                        tasks.create_task(one(diff_id, blob))
        except BaseExceptionGroup as group:
            # They usually fail for one reason; the first reports it.
            raise group.exceptions[0] from None

    async def _commit(self, image: Image, configuration: bytes) -> Image:
        try:
            return await in_thread(self._put, image, configuration)
        except OSError as error:
            raise failure(f"image {image.name}", error) from error

    def _put(self, image: Image, configuration: bytes) -> Image:
        with self._turn:
            images = index.with_image(self._images, image)
            # The index names only what is on disk.
            self._files.keep(image.id, configuration)
            self._files.save(images)
            self._images = images
            return images[image.id]

    def _drop(self, image_id: str) -> None:
        with self._turn:
            images = index.without_image(self._images, image_id)
            self._files.save(images)
            self._images = images
            self._files.forget(image_id)
