"""Image layers as tar archives whose bytes depend on nothing but their content.

Times are zero, owners are root, entries are sorted by path, so the same programs result in the
same digest on every host, and an image is imported once. Source: OCI image-spec, "Image Layer
Filesystem Changeset".
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

DIRECTORY_MODE = 0o755
SHARED_DIRECTORY_MODE = 0o1777


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of a layer."""

    mode: int = DIRECTORY_MODE


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of a layer."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class HardLink:
    """Another name of a file in the same layer; `target` is its path there."""

    target: str


Entry = Directory | File | HardLink


def write_layer(entries: Mapping[str, Entry]) -> bytes:
    """Return an uncompressed layer as a tar archive.

    Paths are relative; missing parent directories are added. Raises ValueError for a link whose
    target is not a file of the layer.
    """
    everything = {**_implied_directories(entries), **entries}
    for path, entry in entries.items():
        if isinstance(entry, HardLink) and not isinstance(everything.get(entry.target), File):
            raise ValueError(f"{path} links to {entry.target}, which is not a file of the layer")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        # A link must come after its target.
        for path in sorted(everything, key=lambda path: (_is_link(everything[path]), path)):
            header, content = _header(path, everything[path])
            archive.addfile(header, content)
    return buffer.getvalue()


def _implied_directories(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    directories: dict[str, Entry] = {}
    for path in entries:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            directories["/".join(parts[:depth])] = Directory()
    return directories


def _is_link(entry: Entry) -> bool:
    return isinstance(entry, HardLink)


def _header(path: str, entry: Entry) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    header = tarfile.TarInfo(path)
    if isinstance(entry, Directory):
        header.type, header.mode = tarfile.DIRTYPE, entry.mode
        return header, None
    if isinstance(entry, HardLink):
        header.type, header.linkname, header.mode = tarfile.LNKTYPE, entry.target, 0o755
        return header, None
    header.size, header.mode = len(entry.content), entry.mode
    return header, io.BytesIO(entry.content)
