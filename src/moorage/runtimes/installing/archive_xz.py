"""Xz files, decompressed with a bound on memory, which `lzma.open` has not.

The headers of a file say how large its dictionary is, up to 4 GiB, which zeros of a few hundred
kilobytes fill.
"""

from __future__ import annotations

import io
import lzma
from typing import IO, Any

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
