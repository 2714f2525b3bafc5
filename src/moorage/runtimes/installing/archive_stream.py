"""Archive streams: a compressed file, decompressed, with a bound on the headers of each entry.

tarfile reads the headers of an entry as a whole, whatever size they declare, and decompression
makes gigabytes of zeros out of a megabyte.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# Xz files, decompressed with a bound on memory, which `lzma.open` has not.
#
# The headers of a file say how large its dictionary is, up to 4 GiB, which zeros of a few hundred
# kilobytes fill.

MAGIC = b"\xfd7zXZ\x00"
MOST_MEMORY_BYTES = 256 * 1024 * 1024
"""Limit on the memory of the decompressor; `xz -9` needs 65 MiB."""

_CHUNK_BYTES = 64 * 1024


class XzContent(io.RawIOBase):
    """The content of an xz file of one or more streams. Blocks; raises LZMAError, EOFError."""

    def __init__(self, file: IO[bytes], *, memory_bytes: int = MOST_MEMORY_BYTES) -> None:
        self._file = file
        self._memory_bytes = memory_bytes
        self._begin()

    def readinto(self, buffer: Any, /) -> int:
        """Read what there is up to the buffer's size; 0 at the end."""
        content = self._read_some(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position; one before the present position decompresses from the start."""
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence != io.SEEK_SET:
            raise io.UnsupportedOperation("the end of an xz file is not known")
        if offset < self._position:
            self._begin()
        while self._position < offset:
            if not self._read_some(min(_CHUNK_BYTES, offset - self._position)):
                break
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def _begin(self) -> None:
        self._file.seek(0)
        self._decoder = self._new_decoder()
        self._position = 0

    def _new_decoder(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=self._memory_bytes)

    def _read_some(self, size: int) -> bytes:
        content = b""
        while not content and size > 0:
            compressed = b""
            if self._decoder.eof:
                # What follows is another stream, or padding.
                compressed = self._decoder.unused_data
                if len(compressed) < len(MAGIC):
                    compressed += self._file.read(_CHUNK_BYTES)
                if not compressed.startswith(MAGIC):
                    return b""
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                compressed = self._file.read(_CHUNK_BYTES)
                if not compressed:
                    raise EOFError("the compressed file ends too early")
            content = self._decoder.decompress(compressed, size)
        self._position += len(content)
        return content


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
