"""Blob stream: the archive inside a blob, decompressed and hashed while it is read.

Memory is bounded whatever the blob claims. Used by `unpack`, so it imports the standard library
alone. Source: OCI image-spec, layer media types; a layer's digest is that of the blob, its diff-id
that of the archive in it.
"""

from __future__ import annotations

import hashlib
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import IO

_CHUNK_BYTES = 1 << 20
_LIMIT_BYTES = 128 << 30
_GZIP_WBITS = 31


class LayerError(Exception):
    """The layer does not match its digest, or is malformed."""


class BlobStream:
    """A stream for `tarfile`: an object with `read`."""

    def __init__(
        self,
        blob: IO[bytes],
        offset: int,
        length: int,
        compression: str,
        limit_bytes: int = _LIMIT_BYTES,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        """Read a blob of `length` bytes from `offset` of a file; it may hold twice `limit_bytes`,
        since an archive has headers and padding beside its content.

        Raises LayerError when the compression is unknown or its program is missing.
        """
        self.chunk_bytes = chunk_bytes
        blob.seek(offset)
        self._blob = blob
        self._left = length
        self._plain_left = 2 * limit_bytes + chunk_bytes
        self._packed = hashlib.sha256()
        # An uncompressed blob is its own content: one hash serves for both.
        self._plain = hashlib.sha256() if compression else self._packed
        self._rest = memoryview(b"")
        opened = _DECODERS.get(compression)
        if opened is None:
            raise LayerError(f"its compression {compression} is unknown")
        self._chunks = opened(self)

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of the archive, fewer only at its end. Raises LayerError."""
        parts, left = [], size
        while left:
            if not self._rest:
                chunk = next(self._chunks, b"")
                if not chunk:
                    break
                self._plain_left -= len(chunk)
                if self._plain_left < 0:
                    raise LayerError("its archive exceeds the image size limit")
                if self._plain is not self._packed:
                    self._plain.update(chunk)
                self._rest = memoryview(chunk)
            part, self._rest = self._rest[:left], self._rest[left:]
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def packed(self) -> Iterator[bytes]:
        """Yield the blob as stored. Raises LayerError when it is truncated."""
        while self._left:
            chunk = self._blob.read(min(self.chunk_bytes, self._left))
            if not chunk:
                raise LayerError("the blob is truncated")
            self._left -= len(chunk)
            self._packed.update(chunk)
            yield chunk

    def digests(self) -> tuple[str, str]:
        """Read to the end. Returns the digests of the blob and of its content. Raises
        LayerError.
        """
        while self.read(self.chunk_bytes):
            continue
        for _ in self.packed():
            continue
        return f"sha256:{self._packed.hexdigest()}", f"sha256:{self._plain.hexdigest()}"

    def check(self, digest: str, diff_id: str) -> None:
        """Read to the end and compare the digests; an empty one is not compared. Raises
        LayerError.
        """
        packed, plain = self.digests()
        if digest and digest != packed:
            raise LayerError(f"the blob's digest is {packed}")
        if diff_id != plain:
            raise LayerError(f"its content's digest is {plain}")


def _open_plain(stream: BlobStream) -> Iterator[bytes]:
    return stream.packed()


def open_gzip(stream: BlobStream) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP_WBITS)
    is_begun = False
    try:
        for packed in stream.packed():
            chunk = packed
            while chunk:
                if decoder.eof:
                    # Gzip members may follow one another, with zeros as padding at the end.
                    chunk = chunk.lstrip(b"\0")
                    if chunk:
                        decoder = zlib.decompressobj(_GZIP_WBITS)
                    continue
                is_begun = True
                # Bounded: a few compressed bytes may expand to gigabytes.
                plain = decoder.decompress(chunk, stream.chunk_bytes)
                chunk = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                if plain:
                    yield plain
    except zlib.error as error:
        raise LayerError(f"the blob cannot be decompressed: {error}") from error
    # Decompressed already, beyond the bound of the previous read.
    if is_begun and (plain := decoder.flush()):
        yield plain
    if is_begun and not decoder.eof:
        raise LayerError("the compressed blob is truncated")


def _open_zstd(stream: BlobStream) -> Iterator[bytes]:
    """Start the zstd program: Python 3.11 has no zstd."""
    try:
        program = subprocess.Popen(
            ["zstd", "--decompress", "--stdout", "--quiet"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise LayerError("it is compressed with zstd, which is not installed") from error
    return _zstd_chunks(stream, program)


def _zstd_chunks(stream: BlobStream, program: subprocess.Popen[bytes]) -> Iterator[bytes]:
    failures: list[Exception] = []
    source, sink = program.stdout, program.stdin
    assert source is not None
    assert sink is not None

    def feed() -> None:
        try:
            with sink:
                for chunk in stream.packed():
                    sink.write(chunk)
        except (LayerError, OSError) as error:  # handed to the reader below
            failures.append(error)

    # Daemonic: when unpacking fails early, the writer must not keep the process alive.
    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    while chunk := source.read(stream.chunk_bytes):
        yield chunk
    feeder.join()
    status = program.wait()
    if status != 0 or failures:
        why = failures[0] if failures else f"zstd ended with status {status}"
        raise LayerError(f"the blob cannot be decompressed: {why}")


_DECODERS: dict[str, Callable[[BlobStream], Iterator[bytes]]] = {
    "": _open_plain,
    "gzip": open_gzip,
    "zstd": _open_zstd,
}
