"""Archives of runtimes: checked against their digest, and extracted in confinement.

Regular files, directories and relative links that stay inside are extracted, with bounds on their
number and size, and on the headers of each; anything else refuses the whole archive. Owners are not
restored, write permission for others and set-id bits are dropped.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from moorage.runtimes.installing.archive_stream import ArchiveStream, HeaderTooLargeError
from moorage.runtimes.installing.errors import RuntimeInstallationError

MOST_FILES = 20_000
MOST_BYTES = 4 * 2**30
_CHUNK_BYTES = 2**20
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
        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        os.fchmod(file.fileno(), 0o755 if entry.mode & 0o111 else 0o644)


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")


def _refused(archive: Path, why: str) -> RuntimeInstallationError:
    return RuntimeInstallationError(f"archive {archive} is refused: {why}")
