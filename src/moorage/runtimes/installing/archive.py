"""Archives of runtimes: checked against their digest, and extracted in confinement.

Regular files, directories and relative links that stay inside are extracted, with bounds on their
number and size, and on the headers of each; anything else refuses the whole archive. Owners are not
restored, write permission for others and set-id bits are dropped.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from moorage.runtimes.installing.downloads import RuntimeInstallationError

# Archive streams: a compressed file, decompressed, with a bound on the headers of each entry.
#
# tarfile reads the headers of an entry as a whole, whatever size they declare, and decompression
# makes gigabytes of zeros out of a megabyte.

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


MOST_FILES = 20_000
MOST_BYTES = 4 * 2**30
_WRITE_BYTES = 2**20
_DEEPEST = 64
_MOST_GLOBAL_FIELDS = 64
_SHOWN = 100


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file as hexadecimal digits. Blocks. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def extract(
    archive: Path, target: Path, *, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES
) -> None:
    """Extract a tar archive, plain or compressed by gzip, bzip2 or xz, into a new directory.

    `most_files` bounds files, links and directories together. Blocks. Raises
    RuntimeInstallationError for an archive that is damaged, exceeds the bounds or has an entry that
    is not allowed, OSError if the directory exists or cannot be written.
    """
    target.mkdir(mode=0o755)
    left_bytes = most_bytes
    links, made = set[PurePosixPath](), set[PurePosixPath]()
    try:
        with ArchiveStream(archive) as stream, _opened(stream) as entries:
            for entry in _entries(archive, stream, entries):
                name = PurePosixPath(entry.name)
                left_bytes -= entry.size
                if left_bytes < 0 or entry.size < 0:
                    raise _refused(archive, f"it has more than {most_bytes} bytes")
                _check_name(archive, entry, name, links)
                made.update(path for path in (name, *name.parents) if path.parts)
                if len(made) > most_files:
                    raise _refused(archive, f"it has more than {most_files} entries")
                _extract(archive, entries, entry, target, links)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _refused(archive, f"its entry {error.filename} is there twice") from error
    except HeaderTooLargeError as error:
        raise _refused(archive, str(error)) from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        # Decompressors raise OSError without a number, and tarfile ValueError for bad numbers.
        raise _refused(
            archive, f"it is no tar archive that can be read ({error}); .tar, .tar.gz, .tar.bz2 "
            "and .tar.xz can"
        ) from error  # fmt: skip


def _opened(stream: ArchiveStream) -> tarfile.TarFile:
    # This reads the first entry's headers.
    with stream.bounded():
        return tarfile.TarFile(fileobj=stream)


def _entries(
    archive: Path, stream: ArchiveStream, entries: tarfile.TarFile
) -> Iterator[tarfile.TarInfo]:
    """Yield the entries. None is kept: their headers may be large."""
    while True:
        with stream.bounded():
            entry = entries.next()
        kept: list[tarfile.TarInfo] = entries.members  # type: ignore[attr-defined]
        kept.clear()
        if entry is None:
            return
        if len(entries.pax_headers) > _MOST_GLOBAL_FIELDS:
            raise _refused(archive, f"it has more than {_MOST_GLOBAL_FIELDS} global header fields")
        yield entry


def _check_name(
    archive: Path, entry: tarfile.TarInfo, name: PurePosixPath, links: set[PurePosixPath]
) -> None:
    if "\0" in entry.name + entry.linkname:
        raise _refused(archive, f"the path of its entry {_shown(entry.name)} has a NUL character")
    if name.is_absolute() or ".." in name.parts or len(name.parts) > _DEEPEST:
        raise _refused(archive, f"the path of its entry {_shown(entry.name)} leads out of it")
    if links.intersection((name, *name.parents)):
        raise _refused(archive, f"its entry {_shown(entry.name)} lies behind a link")


def _extract(
    archive: Path,
    entries: tarfile.TarFile,
    entry: tarfile.TarInfo,
    target: Path,
    links: set[PurePosixPath],
) -> None:
    name = PurePosixPath(entry.name)
    place = target / name
    if not name.parts:
        return
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if entry.isdir():
        place.mkdir(mode=0o755, exist_ok=True)
    elif entry.issym():
        _check_link(archive, entry, name)
        place.symlink_to(entry.linkname)
        links.add(name)
    elif entry.isreg() and not entry.issparse():
        _write(entries, entry, place)
    else:
        what = "sparse" if entry.issparse() else "no file, directory or symbolic link"
        raise _refused(archive, f"its entry {_shown(entry.name)} is {what}")


def _check_link(archive: Path, entry: tarfile.TarInfo, name: PurePosixPath) -> None:
    """Refuse a link that may leave the archive: one that is absolute, or goes up too far.

    `..` may only lead: after another part it would go up from wherever a link there leads to. The
    directories above a link are real ones, since nothing is extracted behind a link.
    """
    parts = PurePosixPath(entry.linkname).parts
    ups = sum(1 for part in parts if part == "..")
    leads = all(part == ".." for part in parts[:ups])
    is_absolute = entry.linkname.startswith("/")
    if not parts or is_absolute or not leads or ups > len(name.parent.parts):
        raise _refused(archive, f"its link {_shown(entry.name)} may lead out of it")


def _write(entries: tarfile.TarFile, entry: tarfile.TarInfo, place: Path) -> None:
    content = entries.extractfile(entry)
    assert content is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(place, flags, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, _WRITE_BYTES)
        os.fchmod(file.fileno(), 0o755 if entry.mode & 0o111 else 0o644)


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")


def _refused(archive: Path, why: str) -> RuntimeInstallationError:
    return RuntimeInstallationError(f"archive {archive} is refused: {why}")
