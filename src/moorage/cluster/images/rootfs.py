"""Root file system archives as images: what `moor image import` reads.

A tar archive of a root file system, from debootstrap, `docker export` or a distribution's download,
becomes an OCI archive with that one layer, compressed as it was. It is neither held in memory nor
unpacked here. Source: OCI image-spec, "Image Layout".
"""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.cluster.errors import ClusterError
from moorage.cluster.images.archive import Image
from moorage.engine.image_layout import (
    CONFIGURATION_TYPE,
    LAYER_TYPE,
    add_blob,
    add_documents,
    descriptor,
    digest,
    encode,
    index_entry,
    manifest,
)
from moorage.engine.images.blob_stream import BlobStream, LayerError
from moorage.linux.program import Platform

# The first bytes of a file → its compression, the suffix of the layer's media type.
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_UNUSABLE = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_IMAGE_FILES = frozenset({"index.json", "manifest.json", "oci-layout"})
_SHELLS = frozenset({"bin/sh", "usr/bin/sh"})
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HEAD_BYTES = 8
_READ_BYTES = 1 << 20


class RootfsError(ClusterError):
    """The file is not an archive of a root file system; the text says what it is and what to do."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An archive as a layer: digests of its packed and unpacked bytes; whether it has a shell."""

    path: Path
    size_bytes: int
    compression: str
    digest: str
    diff_id: str
    has_shell: bool

    @property
    def media_type(self) -> str:
        """The layer's media type in the OCI manifest."""
        return f"{LAYER_TYPE}+{self.compression}" if self.compression else LAYER_TYPE


def read_rootfs(path: Path) -> Layer:
    """Read the archive of a root file system once, to its end; return it as a layer. Blocks.

    Raises RootfsError for a file that is no such archive, OSError.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        size = file.seek(0, io.SEEK_END)
        for magic, name in _UNUSABLE.items():
            if head.startswith(magic):
                raise RootfsError(
                    f"{path} is packed with {name}, which image layers do not support; "
                    "unpack it, or pack it with gzip or zstd"
                )
        compression = next(
            (name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), ""
        )
        try:
            stream = BlobStream(file, 0, size, compression)
            reader = _Reader(stream)
            names = frozenset(_names(reader))
            reader.finish()
            packed, plain = stream.digests()
        except (LayerError, tarfile.TarError, EOFError) as error:
            raise RootfsError(f"{path} is not a tar archive: {error}") from error
    if not names:
        raise RootfsError(f"{path} holds no files")
    if names & _IMAGE_FILES and not names & _SHELLS:
        raise RootfsError(f"{path} is an image already; `moor image load` loads it")
    return Layer(path, size, compression, packed, plain, bool(names & _SHELLS))


class _Reader:
    """Source for `tarfile`; keeps the last block, which is zero in a complete archive."""

    def __init__(self, stream: BlobStream) -> None:
        self._stream = stream
        self._end = b""

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._end = (self._end + content)[-tarfile.BLOCKSIZE :]
        return content

    def finish(self) -> None:
        """Read to the end. Raises LayerError for a truncated archive. Source: tar(5)."""
        while self.read(_READ_BYTES):
            continue
        if self._end != bytes(tarfile.BLOCKSIZE):
            raise LayerError("it is truncated: the zero blocks at its end are missing")


def _names(stream: _Reader) -> Iterator[str]:
    # Other names are not kept: an archive may have millions.
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
        while (entry := archive.next()) is not None:
            name = posixpath.normpath(entry.name).lstrip("/")
            if name in _IMAGE_FILES | _SHELLS:
                yield name
            else:
                yield "…"
            archive.members.clear()


def write_image(target: Path, name: str, platform: Platform, layer: Layer) -> None:
    """Write an OCI archive with one image, of that full name and layer. Blocks. Raises OSError."""
    image = Image(
        name=name,
        platform=platform,
        layers=(),
        command=("/bin/sh",) if layer.has_shell else (),
    )
    configuration = json.loads(image.configuration)
    configuration["rootfs"]["diff_ids"] = [layer.diff_id]
    configuration["config"] = {**configuration["config"], "Env": [_PATH]}
    described = encode(configuration)
    listed = manifest(
        descriptor(CONFIGURATION_TYPE, digest(described), len(described)),
        [descriptor(layer.media_type, layer.digest, layer.size_bytes)],
    )
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        add_documents(archive, [index_entry(listed, name)])
        for content in (described, listed):
            add_blob(archive, digest(content), len(content), io.BytesIO(content))
        with layer.path.open("rb") as file:
            add_blob(archive, layer.digest, layer.size_bytes, file)
