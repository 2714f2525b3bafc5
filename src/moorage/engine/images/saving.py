"""Image export: OCI archives that other engines load.

A store keeps no blobs, only unpacked layers, so layers are packed again: entries sorted by path,
with the layer's whiteouts. A layer whose original blob is in `known_layers`, a directory of
blobs by diff-id, is written unchanged. An image of such layers alone keeps its id; any other has
the same files and another id, since an id depends on the packed bytes. Source: OCI image-spec,
"Image Layout", "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from moorage.engine import image_layout
from moorage.engine.images.image import SHA256
from moorage.engine.images.layers import LayerRecord, read_record, tree_of

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_XATTR = "SCHILY.xattr."
_KEPT_XATTRS = ("user.", "security.capability")
_MICRO = 1_000_000
_MICRO_NS = 1_000
_TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFCHR: tarfile.CHRTYPE,
    stat.S_IFBLK: tarfile.BLKTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


@dataclass(frozen=True, slots=True)
class SaveableImage:
    """An image under one name: its configuration blob and its layers, from the bottom up."""

    name: str
    configuration: bytes
    layers: tuple[tuple[str, Path], ...]
    """Diff-id and the layer's directory in the store."""


@dataclass(frozen=True, slots=True)
class SavedImage:
    """A written image; `is_exact` when it has kept its id."""

    name: str
    id: str
    is_exact: bool


@dataclass(slots=True)
class _Blobs:
    """Blobs to be put into the archive, by digest."""

    scratch: Path
    sizes: dict[str, int] = field(default_factory=dict)

    def path(self, digest: str) -> Path:
        return self.scratch / digest.removeprefix(SHA256)

    def add(self, content: bytes) -> str:
        """Add a blob. Returns its digest."""
        name = image_layout.digest(content)
        self.path(name).write_bytes(content)
        self.sizes[name] = len(content)
        return name

    def descriptor(self, name: str, media_type: str) -> image_layout.Document:
        return image_layout.descriptor(media_type, name, self.sizes[name])


def save_images(
    images: Sequence[SaveableImage], target: BinaryIO, scratch: Path, known_layers: Path | None
) -> tuple[SavedImage, ...]:
    """Write an archive with images. Blocks. Raises OSError.

    `scratch` is a directory for the packed layers, which are removed again.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        blobs = _Blobs(Path(directory))
        packed: dict[str, str] = {}
        listed, saved = [], []
        for image in images:
            for diff_id, layer in image.layers:
                if diff_id not in packed:
                    packed[diff_id] = _pack(diff_id, layer, blobs, known_layers)
            entry, saved_image = _describe(image, packed, blobs)
            listed.append(entry)
            saved.append(saved_image)
        with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
            image_layout.add_documents(archive, listed)
            for name in sorted(blobs.sizes):
                with blobs.path(name).open("rb") as blob:
                    image_layout.add_blob(archive, name, blobs.sizes[name], blob)
    return tuple(saved)


def _describe(
    image: SaveableImage, packed: Mapping[str, str], blobs: _Blobs
) -> tuple[image_layout.Document, SavedImage]:
    """Add an image's configuration and manifest. Returns its index entry, and its id."""
    layers = [packed[diff_id] for diff_id, _ in image.layers]
    is_exact = layers == [diff_id for diff_id, _ in image.layers]
    content = image.configuration
    configuration = json.loads(content)
    if not is_exact:
        configuration["rootfs"]["diff_ids"] = layers
        content = image_layout.encode(configuration)
    described = blobs.add(content)
    manifest = image_layout.manifest(
        blobs.descriptor(described, image_layout.CONFIGURATION_TYPE),
        [blobs.descriptor(layer, image_layout.LAYER_TYPE) for layer in layers],
    )
    blobs.add(manifest)
    platform = {
        key: configuration[key]
        for key in ("architecture", "os", "variant")
        if configuration.get(key)
    }
    entry = image_layout.index_entry(manifest, image.name, platform)
    return entry, SavedImage(image.name, described, is_exact)


def _pack(diff_id: str, layer: Path, blobs: _Blobs, known_layers: Path | None) -> str:
    """Pack a layer as an uncompressed blob. Returns its digest, which is its diff-id too."""
    scratch = blobs.scratch / ".packing"
    source = None if known_layers is None else known_layers / diff_id.removeprefix(SHA256)
    if source is not None and source.is_file():
        shutil.copyfile(source, scratch)
        if SHA256 + _digest(scratch) == diff_id:
            return _keep(scratch, diff_id, blobs)
    with scratch.open("wb") as file:
        pack_layer(tree_of(layer), read_record(layer), file)
    return _keep(scratch, SHA256 + _digest(scratch), blobs)


def _keep(scratch: Path, digest: str, blobs: _Blobs) -> str:
    blobs.sizes[digest] = scratch.stat().st_size
    scratch.rename(blobs.path(digest))
    return digest


def pack_layer(tree: Path, record: LayerRecord, target: BinaryIO) -> None:
    """Write an unpacked layer as a tar archive. Blocks. Raises OSError."""
    hidden, opaque = frozenset(record.whiteouts), frozenset(record.opaques)
    links: dict[tuple[int, int], str] = {}
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _pack_entry(archive, tree, "./", links)
        if "" in opaque:
            image_layout.add_file(archive, _OPAQUE, b"")
        for path in paths_below(tree):
            if path in hidden:
                # Overlayfs's own whiteout, if the tree has it.
                continue
            _pack_entry(archive, tree / path, path, links)
            if path in opaque:
                image_layout.add_file(archive, f"{path}/{_OPAQUE}", b"")
        for path in sorted(hidden):
            directory, _, name = path.rpartition("/")
            mark = f"{directory}/{_WHITEOUT}{name}" if directory else f"{_WHITEOUT}{name}"
            image_layout.add_file(archive, mark, b"")


def _pack_entry(
    archive: tarfile.TarFile, place: Path, path: str, links: dict[tuple[int, int], str]
) -> None:
    status = place.lstat()
    header = tarfile.TarInfo(path)
    header.uid, header.gid = status.st_uid, status.st_gid
    header.mode = stat.S_IMODE(status.st_mode)
    # A reader parses the time as a float, which is exact to microseconds.
    header.mtime, rest = divmod(round(status.st_mtime_ns / _MICRO_NS), _MICRO)
    header.type = _TYPES[stat.S_IFMT(status.st_mode)]
    inode = (status.st_dev, status.st_ino)
    if not header.isdir() and inode in links:
        header.type, header.linkname = tarfile.LNKTYPE, links[inode]
        archive.addfile(header)
        return
    if status.st_nlink > 1:
        links[inode] = path
    if header.issym():
        header.linkname = os.readlink(place)
    elif header.ischr() or header.isblk():
        header.devmajor, header.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
    header.pax_headers = _pax_xattrs(place)
    if rest:
        header.pax_headers["mtime"] = f"{header.mtime}.{rest:06d}"
    if not header.isreg():
        archive.addfile(header)
        return
    header.size = status.st_size
    with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        archive.addfile(header, file)


def _pax_xattrs(place: Path) -> dict[str, str]:
    """Return the image's extended attributes as records of a pax header."""
    return {
        _XATTR + name: os.getxattr(place, name, follow_symlinks=False).decode(
            "utf-8", "surrogateescape"
        )
        for name in os.listxattr(place, follow_symlinks=False)
        if name.startswith(_KEPT_XATTRS)
    }


def paths_below(tree: Path) -> Iterator[str]:
    """Yield the paths below a tree, parents first, sorted; without recursion."""
    waiting = _names(tree, "")
    while waiting:
        path = waiting.pop()
        yield path
        place = tree / path
        if place.is_dir() and not place.is_symlink():
            waiting += _names(tree, path)


def _names(tree: Path, directory: str) -> list[str]:
    """Return the paths in a directory in reverse order."""
    names = sorted(os.listdir(tree / directory), reverse=True)
    return [f"{directory}/{name}" if directory else name for name in names]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
