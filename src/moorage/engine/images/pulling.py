"""Image pull: from a name to blobs in a directory of its own.

    manifest → (platform's manifest) → configuration → the layers that the store lacks

The manifest and the configuration are checked here against their digests, the layers when they are
unpacked. A layer that is present is represented by a sparse file of its size, so that skopeo does
not fetch it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import ExhaustedError, FailedError
from moorage.engine.images.image import SHA256, MalformedImageError, check_digest, layers_of
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
from moorage.engine.images.skopeo import Skopeo
from moorage.wire.cri.reference import Reference, parse


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
