"""Image manifests and indexes of registries and archives.

Pure. Source: OCI image-spec, "Image Index" and "Image Manifest"; docker's manifest version 2,
schema 2, and its manifest list.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform as machine
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.engine.images.image import DOCUMENT_LIMIT_BYTES, MalformedImageError, check_digest

# Size limits of images on disk.
#
# A small layer can unpack to any number of bytes: by compression, sparse entries or entries without
# content. So bytes and entries are counted while it is unpacked, and a part of the disk stays free.

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Limits for each image: bytes and entries of all its layers when unpacked, and number of
    layers.

    `depth` is the number of names in a path, `xattr_bytes` the size of all attributes of one entry.
    `free_bytes` of the disk stay free, or a twentieth of it where that is less.
    """

    unpacked_bytes: int = 128 * _GIB
    entries: int = 4_000_000
    layers: int = 500
    depth: int = 1024
    xattr_bytes: int = 128 << 10
    free_bytes: int = _GIB

    def reserve_bytes(self, place: Path) -> int:
        """Return how many bytes of a directory's disk must stay free. Raises OSError."""
        file_system = os.statvfs(place)
        return min(self.free_bytes, file_system.f_blocks * file_system.f_frsize // 20)

    def check_layers(self, count: int) -> None:
        """Raise MalformedImageError for an image with more layers than the limit."""
        if count > self.layers:
            raise MalformedImageError(
                f"it has {count} layers, more than {self.layers}; merge some of them"
            )


def in_words(size_bytes: int) -> str:
    """Return a size with its unit: `128 GiB`."""
    for unit, name in ((_GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} bytes"


OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1"

# uname's machine → architecture and variants, the preferred first.
_ARCHITECTURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "x86_64": ("amd64", ("",)),
    "aarch64": ("arm64", ("v8", "")),
    "armv7l": ("arm", ("v7", "v6", "")),
    "armv6l": ("arm", ("v6", "")),
    "i686": ("386", ("",)),
    "riscv64": ("riscv64", ("",)),
    "ppc64le": ("ppc64le", ("",)),
    "s390x": ("s390x", ("",)),
    "loongarch64": ("loong64", ("",)),
}

# A system → the names that images give it: WASI had no versions at first.
_SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "wasi": ("wasip1", "wasi", "wasip2"),
    "wasip1": ("wasip1", "wasi"),
}

# End of a layer's media type → its compression.
_COMPRESSIONS = (("tar", ""), ("gzip", "gzip"), ("zstd", "zstd"))
_MODULE_CONFIGURATION = "application/vnd.wasm.config."
_MODULES = frozenset(
    {
        "application/wasm",
        "application/vnd.wasm.content.layer.v1+wasm",
        "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm",
    }
)
_FOREIGN = ("nondistributable", "foreign")


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform of images; systems and variants are in order of preference."""

    architecture: str
    variants: tuple[str, ...] = ("",)
    systems: tuple[str, ...] = ("linux",)

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Parse `OS/ARCHITECTURE[/VARIANT]`, as in a handler file."""
        system, architecture, *variant = text.split("/")
        return cls(architecture, tuple(variant) or ("",), _SYSTEMS.get(system, (system,)))

    def __str__(self) -> str:
        return f"{self.systems[0]}/{self.architecture}"

    @property
    def names(self) -> tuple[str, ...]:
        """Each `OS/ARCHITECTURE` that images of this platform may have, the preferred first."""
        return tuple(f"{system}/{self.architecture}" for system in self.systems)

    @property
    def is_wasi(self) -> bool:
        return self.systems[0] in _SYSTEMS["wasi"]

    @classmethod
    def of_this_machine(cls) -> Platform:
        name = machine.machine()
        return cls(*_ARCHITECTURES.get(name, (name, ("",))))


class _PlatformObject(msgspec.Struct):
    architecture: str = ""
    os: str = ""
    variant: str = ""


class Descriptor(msgspec.Struct, rename="camel"):
    """A blob as a manifest refers to it."""

    digest: str
    size: int
    media_type: str = ""
    platform: _PlatformObject | None = None
    annotations: dict[str, str] | None = None

    @property
    def is_module(self) -> bool:
        """Whether the blob is a WebAssembly module instead of an archive."""
        return self.media_type in _MODULES

    @property
    def compression(self) -> str:
        """`gzip`, `zstd`, or empty for a plain archive or a module; the media type itself if it is
        another.
        """
        if self.is_module:
            return ""
        ends = (name for end, name in _COMPRESSIONS if self.media_type.endswith(end))
        return next(ends, self.media_type)


class Manifest(msgspec.Struct, rename="camel"):
    """The manifest of an image for one platform, or of an artifact for WebAssembly."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str = OCI_MANIFEST

    @property
    def has_modules(self) -> bool:
        """Whether it is an artifact: `modules` reads it."""
        is_declared = self.config.media_type.startswith(_MODULE_CONFIGURATION)
        return is_declared or any(layer.is_module for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Index:
    """An index: platforms of one image, or the images of an archive."""

    manifests: tuple[Descriptor, ...]


class _Kind(msgspec.Struct, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    manifests: tuple[Descriptor, ...] | None = None


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def read_manifest(content: bytes) -> Manifest | Index:
    """Parse a manifest or index and validate its digests. Raises MalformedImageError."""
    if len(content) > DOCUMENT_LIMIT_BYTES:
        raise MalformedImageError(f"its manifest is larger than {DOCUMENT_LIMIT_BYTES} bytes")
    try:
        kind = msgspec.json.decode(content, type=_Kind)
        if kind.schema_version == 1 or kind.media_type.startswith(_SCHEMA_1):
            raise MalformedImageError(
                "it has a docker schema 1 manifest, deprecated in 2019; push the image again"
            )
        if kind.manifests is not None:
            _check(kind.manifests)
            return Index(kind.manifests)
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedImageError(f"its manifest cannot be read: {error}") from error
    _check((manifest.config, *manifest.layers))
    for layer in manifest.layers:
        if any(word in layer.media_type for word in _FOREIGN):
            raise MalformedImageError(f"its layer {layer.digest} is not in the registry")
    return manifest


def pick(index: Index, platform: Platform) -> Descriptor:
    """Return the entry of an index for this platform. Raises MalformedImageError without one."""
    for system, variant in itertools.product(platform.systems, platform.variants):
        for entry in index.manifests:
            about = entry.platform
            if about is not None and (about.os, about.architecture, about.variant) == (
                system, platform.architecture, variant,
            ):  # fmt: skip
                return entry
    offered = ", ".join(
        sorted(
            {
                f"{candidate.os}/{candidate.architecture}"
                for candidate in _platforms(index.manifests)
            }
        )
    )
    raise MalformedImageError(f"no match for platform in manifest: {platform} not in {offered}")


def _platforms(entries: Sequence[Descriptor]) -> list[_PlatformObject]:
    return [entry.platform for entry in entries if entry.platform is not None]


def _check(descriptors: Sequence[Descriptor]) -> None:
    for descriptor in descriptors:
        check_digest(descriptor.digest)
        if descriptor.size < 0:
            raise MalformedImageError(f"{descriptor.digest} has a negative size")
