"""Archive streams: a compressed file, decompressed, with a bound on the headers of each entry.

tarfile reads the headers of an entry as a whole, whatever size they declare, and decompression
makes gigabytes of zeros out of a megabyte.
"""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from moorage.runtimes.installing.archive_xz import MAGIC, XzContent

MOST_HEADER_BYTES = 64 * 1024
"""Limit on the headers of one entry. A path and extended attributes take a few kilobytes."""

MOST_HEADERS_BYTES = 64 * 1024 * 1024
"""Limit on the headers of all entries."""

_BUFFER_BYTES = 64 * 1024

_FORMATS: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (MAGIC, lambda file: io.BufferedReader(XzContent(file), _BUFFER_BYTES)),
)


class HeaderTooLargeError(Exception):
    """The headers of an entry, or of all, exceed their bound."""


class ArchiveStream(io.BufferedIOBase):
    """The decompressed content of an archive, as tarfile reads it. Blocks; raises OSError."""

    def __init__(self, archive: Path) -> None:
        self._file = archive.open("rb")
        beginning = self._file.read(8)
        self._file.seek(0)
        self._content: IO[bytes] = self._file
        for magic, opened in _FORMATS:
            if beginning.startswith(magic):
                self._content = opened(self._file)
        self._is_bounded = False
        self._left, self._left_in_all = 0, MOST_HEADERS_BYTES

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Let what is read in the block be the headers of one entry.

        Raises HeaderTooLargeError where they exceed MOST_HEADER_BYTES.
        """
        self._left, self._is_bounded = MOST_HEADER_BYTES, True
        try:
            yield
        finally:
            self._is_bounded = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer at the end. Raises HeaderTooLargeError."""
        if self._is_bounded:
            self._charge(-1 if size is None else size)
        return self._content.read(-1 if size is None else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position."""
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._content.tell()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file."""
        try:
            if self._content is not self._file:
                self._content.close()
        finally:
            self._file.close()
            super().close()

    def _charge(self, size: int) -> None:
        self._left -= size
        self._left_in_all -= size
        if size < 0 or self._left < 0:
            kib = MOST_HEADER_BYTES // 1024
            raise HeaderTooLargeError(f"the headers of an entry have more than {kib} KiB")
        if self._left_in_all < 0:
            mib = MOST_HEADERS_BYTES // 2**20
            raise HeaderTooLargeError(f"the headers of its entries have more than {mib} MiB")
