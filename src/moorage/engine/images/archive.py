"""Image archives: the images in an OCI archive or one of `docker save`, and where their blobs are.

Layers are read in place. Only an archive that is compressed as a whole is decompressed first.
Source: OCI image-spec, "Image Layout"; docker save; containerd's import for the names.
"""

from __future__ import annotations

import errno
import gzip
import os
import posixpath
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from moorage.engine.images.image import SHA256, MalformedImageError, layers_of
from moorage.engine.images.layers import Blob
from moorage.engine.images.manifest import (
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
from moorage.engine.images.modules import MODULE_PLATFORM, file_of, module_image
from moorage.wire.cri.reference import InvalidReferenceError, Reference, parse

_FULL_NAME = "io.containerd.image.name"
_REF_NAME = "org.opencontainers.image.ref.name"
_GZIP_MAGIC = b"\x1f\x8b"
_DOCUMENT_LIMIT_BYTES = 16 * 1024 * 1024
_DOCUMENTS_LIMIT_BYTES = 64 * 1024 * 1024
"""Of all reads together: an index can name one document many thousand times."""
_LINKS_LIMIT = 8
_ENTRIES_LIMIT = 100_000
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """An image in an archive: its names, its configuration, its layers' blobs from the bottom up.

    `digests` are full names with the manifest's digest, if it has a manifest. `layers` are the
    diff-ids; `platform` is that of a WebAssembly artifact.
    """

    tags: tuple[str, ...]
    digests: tuple[str, ...]
    configuration: bytes
    blobs: tuple[Blob, ...]
    layers: tuple[str, ...]
    platform: str = ""


class _Saved(msgspec.Struct, rename="pascal"):
    config: str
    layers: tuple[str, ...]
    repo_tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    offset: int
    length: int


def read_archive(
    archive: Path,
    scratch: Path,
    platform: Platform,
    limits: ImageLimits | None = None,
    document_bytes: int = _DOCUMENT_LIMIT_BYTES,
    entries: int = _ENTRIES_LIMIT,
) -> tuple[ArchivedImage, ...]:
    """Return the images in an archive. Blocks.

    `scratch` is a directory for the decompressed copy of a compressed archive. A JSON document has
    `document_bytes` at most, the archive so many `entries`. Raises MalformedImageError, OSError.
    """
    with archive.open("rb") as file:
        is_packed = file.read(2) == _GZIP_MAGIC
    if is_packed:
        plain = scratch / "archive.tar"
        try:
            with gzip.open(archive) as reader, plain.open("xb") as writer:
                _copy_bounded(reader, writer, limits or ImageLimits(), scratch)
        except (EOFError, gzip.BadGzipFile) as error:
            raise MalformedImageError(
                f"archive {archive} cannot be decompressed: {error}"
            ) from error
        archive = plain
    contents = _Contents(archive, document_bytes, entries)
    if "index.json" in contents:
        return _read_layout(contents, platform, limits or ImageLimits())
    if "manifest.json" in contents:
        return _read_saved(contents, limits or ImageLimits())
    raise MalformedImageError(f"archive {archive} has neither index.json nor manifest.json")


def _copy_bounded(
    reader: gzip.GzipFile, writer: IO[bytes], limits: ImageLimits, scratch: Path
) -> None:
    """Copy, with a limit. Raises MalformedImageError, OSError when too little of the disk would be
    left.
    """
    left, reserve = limits.unpacked_bytes, limits.reserve_bytes(scratch)
    while chunk := reader.read(_COPIED_BYTES):
        left -= len(chunk)
        if left < 0:
            limit = in_words(limits.unpacked_bytes)
            raise MalformedImageError(f"it unpacks to more than {limit}; raise --image-limit")
        if shutil.disk_usage(scratch).free < reserve:
            why = f"{os.strerror(errno.ENOSPC)}: {in_words(reserve)} must stay free"
            raise OSError(errno.ENOSPC, why, str(scratch))
        writer.write(chunk)


class _Contents:
    """The files of an archive by path."""

    def __init__(self, archive: Path, document_bytes: int, entries: int) -> None:
        self.path = archive
        self._document_bytes = document_bytes
        self._parts: dict[str, _Part] = {}
        self._read_bytes = 0
        links: dict[str, str] = {}
        try:
            with tarfile.open(archive, "r:") as opened:
                while (entry := opened.next()) is not None:
                    path = posixpath.normpath(entry.name)
                    if entry.isreg() and not entry.sparse:
                        self._parts[path] = _Part(entry.offset_data, entry.size)
                    elif entry.issym():
                        links[path] = posixpath.join(posixpath.dirname(path), entry.linkname)
                    elif entry.islnk():
                        links[path] = entry.linkname
                    opened.members.clear()  # type: ignore[attr-defined]
                    if len(self._parts) + len(links) > entries:
                        raise MalformedImageError(f"it has more than {entries} files")
        except tarfile.TarError as error:
            raise MalformedImageError(f"archive {archive} cannot be read: {error}") from error
        # Docker stores equal layers of several images once, and links to them.
        for path, target in links.items():
            part = _followed(target, links, self._parts)
            if part is not None:
                self._parts[path] = part

    def __contains__(self, path: str) -> bool:
        return path in self._parts

    def blob(self, path: str) -> Blob:
        part = self._part(path)
        return Blob(self.path, part.length, part.offset)

    def document(self, path: str) -> bytes:
        part = self._part(path)
        if part.length > self._document_bytes:
            raise MalformedImageError(f"{path} in {self.path} is too large for a JSON document")
        self._read_bytes += part.length
        if self._read_bytes > _DOCUMENTS_LIMIT_BYTES:
            raise MalformedImageError(
                f"the manifests and configurations in {self.path} are more than "
                f"{in_words(_DOCUMENTS_LIMIT_BYTES)}; load fewer images at once"
            )
        with self.path.open("rb") as file:
            file.seek(part.offset)
            return file.read(part.length)

    def checked(self, digest: str) -> bytes:
        """Return a small blob of an OCI layout whose content matches the digest in its name."""
        content = self.document(_blob_path(digest))
        if digest_of(content) != digest:
            raise MalformedImageError(f"blob {digest} in {self.path} does not match its digest")
        return content

    def _part(self, path: str) -> _Part:
        try:
            return self._parts[posixpath.normpath(path)]
        except KeyError:
            raise MalformedImageError(f"{path} is missing in archive {self.path}") from None


def _followed(target: str, links: Mapping[str, str], parts: Mapping[str, _Part]) -> _Part | None:
    for _ in range(_LINKS_LIMIT):
        target = posixpath.normpath(target)
        if target in parts:
            return parts[target]
        if target not in links:
            return None
        target = links[target]
    return None


def _read_layout(
    contents: _Contents, platform: Platform, limits: ImageLimits
) -> tuple[ArchivedImage, ...]:
    index = read_manifest(contents.document("index.json"))
    if not isinstance(index, Index):
        raise MalformedImageError(f"index.json in {contents.path} lists no images")
    return tuple(_archived(contents, entry, platform, limits) for entry in index.manifests)


def _archived(
    contents: _Contents, entry: Descriptor, platform: Platform, limits: ImageLimits
) -> ArchivedImage:
    manifest = read_manifest(contents.checked(entry.digest))
    if isinstance(manifest, Index):
        manifest = read_manifest(contents.checked(pick(manifest, platform).digest))
    if not isinstance(manifest, Manifest):
        raise MalformedImageError(f"{entry.digest} in {contents.path} is a nested index")
    limits.check_layers(len(manifest.layers))
    blobs = tuple(
        replace(
            contents.blob(_blob_path(layer.digest)),
            digest=layer.digest,
            compression=layer.compression,
            file=file_of(layer),
        )
        for layer in manifest.layers
    )
    tags, digests = _names(entry)
    configuration, chosen = contents.checked(manifest.config.digest), ""
    if manifest.has_modules:
        # An archive is loaded for all handlers.
        configuration, layers, chosen = module_image(manifest, configuration, MODULE_PLATFORM)
    else:
        layers = layers_of(configuration, len(blobs))
    return ArchivedImage(tags, digests, configuration, blobs, layers, chosen)


def _names(entry: Descriptor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    annotations = entry.annotations or {}
    # The second annotation may hold a tag alone, which is not a name.
    text = annotations.get(_FULL_NAME) or annotations.get(_REF_NAME, "")
    if not text or (_FULL_NAME not in annotations and not set(text) & set("/:@")):
        return (), ()
    name = _parsed(text)
    digests = (f"{name.repository}@{entry.digest}",)
    return (() if name.digest else (name.full,)), digests


def _read_saved(contents: _Contents, limits: ImageLimits) -> tuple[ArchivedImage, ...]:
    try:
        saved = msgspec.json.decode(contents.document("manifest.json"), type=tuple[_Saved, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedImageError(f"manifest.json in {contents.path}: {error}") from error
    return tuple(_saved(contents, image, limits) for image in saved)


def _saved(contents: _Contents, image: _Saved, limits: ImageLimits) -> ArchivedImage:
    limits.check_layers(len(image.layers))
    configuration = contents.document(image.config)
    return ArchivedImage(
        tags=tuple(_parsed(tag).full for tag in image.repo_tags or ()),
        digests=(),
        configuration=configuration,
        blobs=tuple(
            replace(contents.blob(path), compression=_packing(contents, path))
            for path in image.layers
        ),
        layers=layers_of(configuration, len(image.layers)),
    )


def _packing(contents: _Contents, path: str) -> str:
    """Return a layer's compression by its first bytes; docker's manifest does not say it."""
    blob = contents.blob(path)
    with blob.path.open("rb") as file:
        file.seek(blob.offset)
        return "gzip" if file.read(2) == _GZIP_MAGIC else ""


def _parsed(name: str) -> Reference:
    try:
        return parse(name)
    except InvalidReferenceError as error:
        raise MalformedImageError(str(error)) from error


def _blob_path(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix(SHA256)}"
