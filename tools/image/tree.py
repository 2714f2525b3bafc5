"""Tree of files: what an image's layer holds, and its tar archive.

Owners are root, times are one given moment, entries are sorted: the bytes depend on nothing else.
Source: OCI image-spec, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_MODE, FILE_MODE, PROGRAM_MODE = 0o755, 0o644, 0o755
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory, a file with `content`, or a symbolic link with a `target`."""

    mode: int
    content: bytes | None = None
    target: str = ""


class Tree:
    """Entries by path, relative to the root."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._entries

    def __getitem__(self, path: str) -> Entry:
        return self._entries[path]

    def items(self) -> list[tuple[str, Entry]]:
        """Return paths and entries, sorted by path."""
        return sorted(self._entries.items())

    def add_directory(self, path: str, mode: int = DIRECTORY_MODE) -> None:
        self._entries[path] = Entry(mode)

    def add_file(self, path: str, content: bytes, mode: int = FILE_MODE) -> None:
        self._entries[path] = Entry(mode, content)

    def add_link(self, path: str, target: str) -> None:
        self._entries[path] = Entry(0o777, target=target)

    def remove(self, path: str) -> None:
        """Remove an entry, and what is below it."""
        for other in [one for one in self._entries if one == path or one.startswith(f"{path}/")]:
            del self._entries[other]

    def complete(self) -> None:
        """Add the directories that no entry names but some are in."""
        for path in list(self._entries):
            for parent in _parents(path):
                if parent not in self._entries:
                    self.add_directory(parent)

    def size_bytes(self) -> int:
        return sum(len(entry.content or b"") for entry in self._entries.values())

    def write(self, directory: Path) -> None:
        """Write the tree into a directory."""
        for path, entry in self.items():
            place = directory / path
            if entry.target:
                place.symlink_to(entry.target)
            elif entry.content is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(entry.content)
            if not entry.target:
                place.chmod(entry.mode)


def write_layer(tree: Tree, moment: int) -> tuple[bytes, bytes]:
    """Return a layer plain and compressed; `moment` is the time of each entry, since 1970."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in tree.items():
            header = tarfile.TarInfo(path)
            header.mode, header.mtime = entry.mode, moment
            if entry.target:
                header.type, header.linkname = tarfile.SYMTYPE, entry.target
                archive.addfile(header)
            elif entry.content is None:
                header.type = tarfile.DIRTYPE
                archive.addfile(header)
            else:
                header.size = len(entry.content)
                archive.addfile(header, io.BytesIO(entry.content))
    plain = buffer.getvalue()
    return plain, gzip.compress(plain, _LEVEL, mtime=0)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
