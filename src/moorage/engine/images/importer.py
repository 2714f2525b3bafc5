"""Image importer: pulls from registries and loads from archives, through a temporary directory.

Concurrent pulls of one name with the same credentials share one pull.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import ExhaustedError, FailedError, NotFoundError
from moorage.engine.images.archive import read_archive
from moorage.engine.images.catalogue import Catalogue
from moorage.engine.images.image import SHA256, Image, MalformedImageError, check_digest, layers_of
from moorage.engine.images.layers import Blob
from moorage.engine.images.manifest import (
    OCI_MANIFEST,
    Descriptor,
    ImageLimits,
    Index,
    Manifest,
    Platform,
    digest_of,
    in_words,
    pick,
    read_manifest,
)
from moorage.engine.images.modules import file_of, module_image
from moorage.engine.images.rootfs import failure
from moorage.engine.images.single_flight import SingleFlight
from moorage.engine.images.skopeo import Credentials, Skopeo, credentials_file
from moorage.engine.images.threads import in_thread
from moorage.engine.leftovers import remove_leftover
from moorage.linux.trees import remove_tree
from moorage.linux.trust import make_private
from moorage.wire.cri.reference import Reference, parse

# Image pull: from a name to blobs in a directory of its own.
#
#     manifest → (platform's manifest) → configuration → the layers that the store lacks
#
# The manifest and the configuration are checked here against their digests, the layers when they
# are unpacked. A layer that is present is represented by a sparse file of its size, so that
# skopeo does not fetch it.


@dataclass(frozen=True, slots=True)
class Offer:
    """What a registry serves under the requested name.

    `exact` names the manifest for this platform, `digest` is that of the manifest or index served
    first. `platform` is the one that was chosen from an index, or that of a WebAssembly artifact,
    whose `configuration` is made of its manifest.
    """

    requested: Reference
    exact: Reference
    digest: str
    manifest: Manifest
    configuration: bytes
    layers: tuple[str, ...]
    platform: str = ""

    def blobs(self, directory: Path) -> list[tuple[str, Blob]]:
        """Return each layer's diff-id and its blob, fetched into that directory."""
        return [
            (
                diff_id,
                Blob(
                    blob_file(directory, descriptor),
                    descriptor.size,
                    0,
                    descriptor.digest,
                    descriptor.compression,
                    file_of(descriptor),
                ),
            )
            for diff_id, descriptor in zip(self.layers, self.manifest.layers, strict=True)
        ]


_NO_PLATFORM = "no match for platform"


class Puller:
    """Pulls from registries with skopeo."""

    def __init__(self, skopeo: Skopeo, platform: Platform, limits: ImageLimits) -> None:
        self._limits = limits
        self._skopeo = skopeo
        self._platform = platform

    async def digest(self, reference: Reference, auth: Path | None) -> tuple[str, bytes]:
        """Return the digest and bytes that a registry serves under a name. Raises EngineError."""
        content = await self._skopeo.manifest(reference, auth, reference.full)
        return _checked(reference, reference, content), content

    async def offer(
        self,
        reference: Reference,
        auth: Path | None,
        digest: str,
        content: bytes,
        platform: Platform | None = None,
    ) -> Offer:
        """Resolve a manifest to an image for a platform, the host's without one.

        Raises EngineError.
        """
        try:
            manifest = read_manifest(content)
            wanted = platform or self._platform
            exact, chosen = _at(reference, digest), ""
            if isinstance(manifest, Index):
                exact, chosen = _at(reference, pick(manifest, wanted).digest), str(wanted)
                content = await self._skopeo.manifest(exact, auth, reference.full)
                _checked(reference, exact, content)
                manifest = read_manifest(content)
            if not isinstance(manifest, Manifest):
                raise MalformedImageError("its index refers to another index")
            self._limits.check_layers(len(manifest.layers))
            configuration = await self._skopeo.configuration(exact, auth, reference.full)
            if digest_of(configuration) != manifest.config.digest:
                raise MalformedImageError(f"configuration {manifest.config.digest} is corrupt")
            if manifest.has_modules:
                configuration, layers, chosen = module_image(manifest, configuration, wanted)
            else:
                layers = layers_of(configuration, len(manifest.layers))
        except MalformedImageError as error:
            remedy = ""
            if str(error).startswith(_NO_PLATFORM):
                remedy = (
                    "; build the image for that platform, or run the pod under a handler whose "
                    "file has `platform` set to one of these"
                )
            raise _failure(reference, f"{error}{remedy}") from error
        return Offer(reference, exact, digest, manifest, configuration, layers, chosen)

    async def fetch(
        self,
        offer: Offer,
        auth: Path | None,
        present: Container[str],
        directory: Path,
    ) -> None:
        """Fetch the blobs of the missing layers into a directory. Raises EngineError."""
        self._check_size(offer, present, directory)
        await asyncio.to_thread(_stand_in, offer, present, directory)
        await self._skopeo.copy(
            offer.exact, auth, directory, offer.requested.full,
            is_oci=offer.manifest.media_type == OCI_MANIFEST,
            size_bytes=sum(layer.size for layer in offer.manifest.layers),
        )  # fmt: skip
        self._check_layers(offer, present, directory)

    def _check_size(self, offer: Offer, present: Container[str], directory: Path) -> None:
        """Refuse an image that would not fit, by its manifest, before anything is fetched."""
        needed = sum(
            descriptor.size
            for diff_id, descriptor in zip(offer.layers, offer.manifest.layers, strict=True)
            if diff_id not in present
        )
        limits = self._limits
        if needed > limits.unpacked_bytes:
            raise _failure(
                offer.requested,
                f"its layers are {in_words(needed)}, more than {in_words(limits.unpacked_bytes)}; "
                "use a smaller image, or raise the engine's --image-limit",
            )
        # A pull that needs no room is never refused.
        free = max(0, shutil.disk_usage(directory).free - limits.reserve_bytes(directory))
        if needed > free:
            raise ExhaustedError(
                f'failed to pull image "{offer.requested.full}": no space left on device: its '
                f"layers need {in_words(needed)}, and {in_words(free)} are available; free space "
                "or remove images"
            )

    def _check_layers(self, offer: Offer, present: Container[str], directory: Path) -> None:
        for diff_id, blob in offer.blobs(directory):
            if diff_id not in present and not blob.path.exists():
                raise _failure(offer.requested, f"layer {blob.digest} was not delivered")


def blob_file(directory: Path, blob: Descriptor) -> Path:
    """Return the file of a blob in a directory."""
    return directory / "blobs/sha256" / blob.digest.removeprefix(SHA256)


def _stand_in(offer: Offer, present: Container[str], directory: Path) -> None:
    (directory / "blobs/sha256").mkdir(parents=True)
    for diff_id, descriptor in zip(offer.layers, offer.manifest.layers, strict=True):
        if diff_id in present:
            # Only its size is checked, and a hole takes no room.
            with blob_file(directory, descriptor).open("wb") as file:
                os.truncate(file.fileno(), descriptor.size)


def _at(reference: Reference, digest: str) -> Reference:
    """Return the reference of exactly that manifest, even if the tag moves meanwhile."""
    return parse(f"{reference.repository}@{check_digest(digest)}")


def _checked(requested: Reference, exact: Reference, content: bytes) -> str:
    """Return the digest of the served bytes. Raises FailedError if another was requested."""
    digest = digest_of(content)
    if exact.digest and exact.digest != digest:
        raise _failure(requested, f"the registry served {digest} instead of {exact.digest}")
    return digest


def _failure(reference: Reference, why: str) -> FailedError:
    return FailedError(f'failed to pull image "{reference.full}": {why}')


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
