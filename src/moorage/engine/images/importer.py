"""Image importer: pulls from registries and loads from archives, through a temporary directory.

Concurrent pulls of one name with the same credentials share one pull.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import FailedError, NotFoundError
from moorage.engine.images.archive import read_archive
from moorage.engine.images.catalogue import Catalogue
from moorage.engine.images.image import Image, MalformedImageError
from moorage.engine.images.manifest import Platform
from moorage.engine.images.pulling import Puller
from moorage.engine.images.rootfs import failure
from moorage.engine.images.single_flight import SingleFlight
from moorage.engine.images.skopeo import Credentials, Skopeo, credentials_file
from moorage.engine.images.threads import in_thread
from moorage.engine.leftovers import remove_leftover
from moorage.linux.trees import remove_tree
from moorage.linux.trust import make_private
from moorage.wire.cri.reference import Reference


@dataclass(frozen=True, slots=True)
class Loaded:
    """An image from an archive, and its names there, which may be fewer than its names in the
    store.
    """

    image: Image
    names: tuple[str, ...]


class ImageImporter:
    """Pulls and loads into a catalogue. `directory` is for blobs in transit, `run` for secrets."""

    def __init__(
        self,
        directory: Path,
        run: Path,
        catalogue: Catalogue,
        skopeo: Skopeo,
        platform: Platform,
        single_flight: SingleFlight[Image],
    ) -> None:
        self._directory = directory
        self._run = run
        self._catalogue = catalogue
        self._skopeo = skopeo
        self._platform = platform
        self._puller = Puller(skopeo, platform, catalogue.layers.limits)
        self._single_flight = single_flight

    def load_directories(self) -> None:
        """Create the directories, and remove what an earlier engine left in them. Blocks. Raises
        OSError.
        """
        for path in (self._directory, self._run):
            make_private(path)
        for left in self._directory.iterdir():
            # A program that is being killed may still write there.
            remove_leftover(left)
        for left in self._run.glob("*.auth.json"):
            left.unlink()
        self._skopeo.configure()

    async def pull(
        self,
        reference: Reference,
        credentials: Credentials | None,
        platform: Platform | None = None,
    ) -> Image:
        """Return the image as the registry serves it now, for a platform. Raises EngineError."""
        return await self._single_flight.join(
            (reference.full, credentials, platform),
            lambda: self._pull(reference, credentials, platform),
        )

    async def load(self, archive: Path) -> tuple[Loaded, ...]:
        """Install the images of an archive. Raises EngineError."""
        loaded = []
        try:
            async with self._tidied(), self._scratch() as directory:
                for entry in await in_thread(
                    read_archive, archive, directory, self._platform, self._catalogue.layers.limits
                ):
                    blobs = list(zip(entry.layers, entry.blobs, strict=True))
                    image = await self._catalogue.install(
                        entry.configuration, blobs, entry.tags, entry.digests, entry.platform
                    )
                    loaded.append(Loaded(image, entry.tags or (image.id,)))
        except MalformedImageError as error:
            raise FailedError(f"failed to load images from {archive}: {error}") from error
        except OSError as error:
            raise failure(f"failed to load images from {archive}", error) from error
        return tuple(loaded)

    async def _pull(
        self, reference: Reference, credentials: Credentials | None, platform: Platform | None
    ) -> Image:
        name = secrets.token_hex(8)
        try:
            with credentials_file(self._run, name, reference, credentials) as auth:
                digest, content = await self._puller.digest(reference, auth)
                tags = () if reference.digest else (reference.full,)
                digests = (f"{reference.repository}@{digest}",)
                # The digest of an index is that of all its platforms.
                present = self._present(digests[0], platform or self._platform)
                if present is not None:
                    if set(tags) <= set(present.tags):
                        return present
                    return await self._catalogue.rename(present, tags, digests)
                offer = await self._puller.offer(reference, auth, digest, content, platform)
                async with self._tidied(), self._scratch() as directory:
                    layers = self._catalogue.layers
                    # A present layer is not fetched, so it must not be collected.
                    with self._catalogue.holding(offer.layers):
                        await self._puller.fetch(offer, auth, layers, directory)
                        return await self._catalogue.install(
                            offer.configuration,
                            offer.blobs(directory),
                            tags,
                            digests,
                            offer.platform,
                        )
        except OSError as error:
            raise failure(f'failed to pull image "{reference.full}"', error) from error

    def _present(self, digest: str, platform: Platform) -> Image | None:
        try:
            return self._catalogue.find(digest, platform.names)
        except NotFoundError:
            return None

    @asynccontextmanager
    async def _tidied(self) -> AsyncIterator[None]:
        """Collect unpacked layers that no image uses, also after a cancellation."""
        try:
            yield
        except BaseException:
            await self._catalogue.collect()
            raise

    @asynccontextmanager
    async def _scratch(self) -> AsyncIterator[Path]:
        directory = self._directory / secrets.token_hex(8)
        directory.mkdir(mode=0o700)
        try:
            yield directory
        finally:
            await in_thread(remove_tree, directory)
