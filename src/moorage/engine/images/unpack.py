"""Layer unpacker: a child process confined to the layer's directory.

    job (JSON on stdin) → child: chroot into the directory → tree and record, or an error on stdout

A layer is not trusted: its paths and links are followed only after the chroot, and memory is
limited. Run as a file, so that it starts without the rest of Moorage: it imports `blob_stream`,
`linux.trees`, `linux.libc` and the standard library alone. Source: OCI image-spec, "Image Layer
Filesystem Changeset"; overlayfs, "whiteouts and opaque directories".
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import stat
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # An isolated interpreter does not import from the program's directory.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from blob_stream import BlobStream, LayerError  # type: ignore[import-not-found]

    # The `__init__` modules above `linux` import nothing; those above this file do.
    sys.path.append(str(Path(__file__).resolve().parents[3]))
else:
    from moorage.engine.images.blob_stream import BlobStream, LayerError

from moorage.linux import libc
from moorage.linux.trees import disk_use, make_directories, remove_tree

_CHUNK_BYTES = 1 << 20
# tarfile copies the rest of its buffer at each read: a large buffer makes small files slow.
_BUFFER_BYTES = 1 << 15
_MEMORY_BYTES = 1 << 30
# Approximate disk use of an entry without content: inode and name.
_ENTRY_BYTES = 512
_CHECKED_EACH_BYTES = 16 << 20
_HOW = (
    ", which is the engine's limit: use a smaller image, or raise it with `moor engine "
    "--image-limit`"
)
_WHITEOUT, _OPAQUE, _HIDDEN = ".wh.", ".wh..wh..opq", ".wh..wh."
_OPAQUE_XATTR = "trusted.overlay.opaque"
_XATTR = "SCHILY.xattr."
# Other namespaces would reach overlayfs or the host's security modules.
_KEPT_XATTRS = ("user.", "security.capability")
_DROPPED_XATTRS = ("user.overlay.",)
_UNMARKABLE = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL})


_NO_ID = 2**32 - 1
_LATEST_S = 2.0**40
# Source: Linux, `MAJOR` and `MINOR` of dev_t.
_MAJORS, _MINORS = 1 << 12, 1 << 20
_SHOWN_DIGITS = 40


class Budget:
    """The remaining limits of a layer. Raises LayerError, or ENOSPC for the disk's reserve."""

    def __init__(
        self, *, size_bytes: int, entries: int, depth: int, xattr_bytes: int, reserve_bytes: int
    ) -> None:
        self._size_bytes = self._left_bytes = size_bytes
        self._entries = self._left_entries = entries
        self._depth = depth
        self._xattr_bytes = xattr_bytes
        self._reserve_bytes = reserve_bytes
        self._unchecked_bytes = _CHECKED_EACH_BYTES

    def entry(self, path: str) -> None:
        """Count an entry with its inode and name."""
        self._left_entries -= 1
        if self._left_entries < 0:
            raise LayerError(f"the image has more than {self._entries} entries{_HOW}")
        if path.count("/") >= self._depth:
            raise LayerError(f"path {path[:40]}… is deeper than {self._depth} names{_HOW}")
        self.take(_ENTRY_BYTES)

    def take(self, size_bytes: int) -> None:
        """Count bytes that are about to be written."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            limit = self._size_bytes
            raise LayerError(f"the image unpacks to more than {limit} bytes{_HOW}")
        self._unchecked_bytes += size_bytes
        if self._unchecked_bytes >= _CHECKED_EACH_BYTES:
            self._unchecked_bytes = 0
            file_system = os.statvfs("/")
            if file_system.f_bavail * file_system.f_frsize < self._reserve_bytes:
                why = f"{os.strerror(errno.ENOSPC)}: {self._reserve_bytes} bytes must stay free"
                raise OSError(errno.ENOSPC, why)

    def attributes(self, path: str, size_bytes: int) -> None:
        """Count the extended attributes of an entry."""
        if size_bytes > self._xattr_bytes:
            raise LayerError(
                f"{path} has {size_bytes} bytes of extended attributes, more than "
                f"{self._xattr_bytes}{_HOW}"
            )
        self.take(size_bytes)


class Extraction:
    """Extracts entries below the root directory."""

    def __init__(self, budget: Budget, *, is_marked: bool) -> None:
        """`is_marked`: leave overlayfs's marks in the tree; else they are only listed."""
        self._budget = budget
        self._is_marked = is_marked
        self._directory_times: dict[str, int] = {}
        self._made: set[str] = set()
        self.whiteouts: set[str] = set()
        self.opaques: set[str] = set()
        self._makers: dict[bytes, Callable[[str, tarfile.TarInfo], None]] = {
            tarfile.DIRTYPE: self._directory,
            tarfile.SYMTYPE: self._symlink,
            tarfile.LNKTYPE: self._hard_link,
            tarfile.CHRTYPE: self._device,
            tarfile.BLKTYPE: self._device,
            tarfile.FIFOTYPE: self._fifo,
        }

    def add(self, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        """Extract an entry. Raises LayerError, OSError."""
        path = member_path(entry.name)
        self._budget.entry(path)
        check_numbers(path, entry)
        directory, _, name = path.rpartition("/")
        if name.startswith(_WHITEOUT):
            self._hide(directory, name)
            return
        if entry.type not in self._makers and not entry.isreg():
            raise LayerError(f"entry {path} has the unsupported type {entry.type!r}")
        self._make_room(path, directory, entry)
        if entry.isreg():
            self._write(archive, entry, path)
        else:
            self._makers[entry.type](path, entry)
        self._made.add(path)
        if not entry.islnk():
            self._set_attributes(path, entry)
        if entry.isdir():
            self._directory_times[path] = _nanoseconds(entry)
            if path in self.whiteouts:
                # Hidden and created again: nothing of the lower directory shows.
                self.whiteouts.discard(path)
                self._make_opaque(path)
        else:
            self.whiteouts.discard(path)

    def add_file(self, stream: BlobStream, name: str) -> None:
        """Write a blob as one file that can be executed. Raises LayerError, OSError."""
        self._budget.entry(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(f"/{name}", flags, 0o755), "wb", buffering=0) as target:
            while chunk := stream.read(_CHUNK_BYTES):
                self._budget.take(len(chunk))
                while chunk:
                    chunk = chunk[target.write(chunk) :]

    def finish(self) -> None:
        """Set the times of directories, which extraction has changed."""
        for path, moment in sorted(self._directory_times.items(), reverse=True):
            if os.path.isdir(f"/{path}"):
                os.utime(f"/{path}", ns=(moment, moment), follow_symlinks=False)

    def _make_room(self, path: str, directory: str, entry: tarfile.TarInfo) -> None:
        if directory:
            # A file in place of a directory contradicts the layer itself: an error.
            make_directories(Path(f"/{directory}"), 0o755)
        try:
            present = os.lstat(f"/{path}")
        except FileNotFoundError:
            return
        if stat.S_ISDIR(present.st_mode):
            if not entry.isdir():
                if not path:
                    raise LayerError("the root is not a directory")
                remove_tree(Path(f"/{path}"))
        else:
            os.unlink(f"/{path}")

    def _hide(self, directory: str, name: str) -> None:
        if name == _OPAQUE:
            make_directories(Path(f"/{directory}"), 0o755)
            self._make_opaque(directory)
            return
        if name.startswith(_HIDDEN):
            # AUFS metadata.
            return
        hidden = name.removeprefix(_WHITEOUT)
        if hidden in ("", ".", ".."):
            raise LayerError(f"whiteout {directory}/{name} has no target name")
        path = f"{directory}/{hidden}" if directory else hidden
        if os.path.lexists(f"/{path}"):
            if os.path.isdir(f"/{path}") and not os.path.islink(f"/{path}"):
                self._make_opaque(path)
            return
        make_directories(Path(f"/{directory}"), 0o755)
        self.whiteouts.add(path)
        if self._is_marked:
            os.mknod(f"/{path}", stat.S_IFCHR | 0o000, os.makedev(0, 0))

    def _make_opaque(self, directory: str) -> None:
        self.opaques.add(directory)
        if self._is_marked:
            os.setxattr(f"/{directory}", _OPAQUE_XATTR, b"y")

    def _directory(self, path: str, _entry: tarfile.TarInfo) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"/{path}", 0o700)

    def _symlink(self, path: str, entry: tarfile.TarInfo) -> None:
        os.symlink(entry.linkname, f"/{path}")

    def _hard_link(self, path: str, entry: tarfile.TarInfo) -> None:
        target = member_path(entry.linkname)
        if target not in self._made:
            # Only entries of this layer: a link must not reach a mark or an implied directory.
            raise LayerError(f"hard link {path} to {target}, which is not in the layer before it")
        os.link(f"/{target}", f"/{path}", follow_symlinks=False)

    def _device(self, path: str, entry: tarfile.TarInfo) -> None:
        kind = stat.S_IFCHR if entry.ischr() else stat.S_IFBLK
        number = os.makedev(entry.devmajor, entry.devminor)
        os.mknod(f"/{path}", kind | 0o600, number)

    def _fifo(self, path: str, _entry: tarfile.TarInfo) -> None:
        os.mkfifo(f"/{path}", 0o600)

    def _write(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, path: str) -> None:
        source = archive.extractfile(entry)
        if source is None:
            raise LayerError(f"entry {path} has no content")
        left = entry.size
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(f"/{path}", flags, 0o600), "wb", buffering=0) as target:
            while left:
                chunk = source.read(min(_CHUNK_BYTES, left))
                if not chunk:
                    raise LayerError(f"file {path} is truncated")
                left -= len(chunk)
                # A sparse entry is larger than its data in the archive.
                self._budget.take(len(chunk))
                while chunk:
                    chunk = chunk[target.write(chunk) :]

    def _set_attributes(self, path: str, entry: tarfile.TarInfo) -> None:
        full = f"/{path}"
        os.chown(full, entry.uid, entry.gid, follow_symlinks=False)
        if not entry.issym():
            # After the owner, whose change clears set-user-id.
            os.chmod(full, entry.mode & 0o7777)
        attributes = _attributes(entry)
        if attributes:
            self._budget.attributes(path, sum(map(len, attributes.values())))
        for name, content in attributes.items():
            try:
                os.setxattr(full, name, content, follow_symlinks=False)
            except OSError as error:
                # As containerd does: an attribute that this file system does not support is left
                # out.
                if error.errno not in _UNMARKABLE:
                    raise
        moment = _nanoseconds(entry)
        os.utime(full, ns=(moment, moment), follow_symlinks=False)


def member_path(name: str) -> str:
    """Return a path below the root without dots. Raises LayerError if it leaves the root."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise LayerError(f"entry {name!r} points outside the layer")
    return "/".join(parts)


def _attributes(entry: tarfile.TarInfo) -> dict[str, bytes]:
    """Return the extended attributes to keep."""
    attributes = {}
    for key, value in entry.pax_headers.items():
        name = key.removeprefix(_XATTR)
        if name != key and name.startswith(_KEPT_XATTRS) and not name.startswith(_DROPPED_XATTRS):
            attributes[name] = value.encode("utf-8", "surrogateescape")
    return attributes


def check_numbers(path: str, entry: tarfile.TarInfo) -> None:
    """Refuse numbers out of range; PAX headers hold any. Raises LayerError."""
    if entry.size < 0:
        raise LayerError(f"entry {path} has a negative size")
    for what, number in (("user", entry.uid), ("group", entry.gid)):
        # The last id means "leave unchanged". Source: chown(2).
        if not 0 <= number < _NO_ID:
            raise LayerError(
                f"entry {path}: {what} id {_shown(number)} is out of range (0 to {_NO_ID - 1})"
            )
    if not abs(entry.mtime) <= _LATEST_S:
        # NaN compares false.
        raise LayerError(f"entry {path} has the invalid modification time {entry.mtime}")
    major, minor = entry.devmajor, entry.devminor
    if entry.isdev() and not (0 <= major < _MAJORS and 0 <= minor < _MINORS):
        raise LayerError(
            f"entry {path} has the invalid device number {_shown(major)}:{_shown(minor)}"
        )


def _shown(number: int) -> str:
    """Return a number for messages; a header can hold one of thousands of digits."""
    text = str(number) if abs(number) < 1 << 128 else hex(number)
    return text if len(text) <= _SHOWN_DIGITS else f"{text[:_SHOWN_DIGITS]}…"


def _nanoseconds(entry: tarfile.TarInfo) -> int:
    return int(entry.mtime * 1_000_000_000)


def run(job: dict[str, Any]) -> None:
    """Unpack, write the record and sync both. Raises LayerError, OSError, TarError."""
    # When the engine dies, this process must not race its successor.
    libc.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != job["parent"]:
        raise LayerError("the engine has exited")
    os.umask(0)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    private = os.open(job["record"], flags, 0o600)
    with open(job["blob"], "rb") as blob, open(private, "w", encoding="utf-8") as record:
        stream = BlobStream(
            blob, job["offset"], job["length"], job["compression"], job["budget"]["size_bytes"]
        )
        # Load the codec before the chroot.
        "x".encode("idna")
        os.chroot(job["directory"])
        os.chdir("/")
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        extraction = Extraction(Budget(**job["budget"]), is_marked=job["is_marked"])
        if job["file"]:
            extraction.add_file(stream, job["file"])
            stream.check(job["digest"], job["digest"])
        else:
            _extract(stream, extraction)
            stream.check(job["digest"], job["diff_id"])
        extraction.finish()
        size_bytes, inodes = disk_use([Path("/")])
        result = {
            "bytes": size_bytes,
            "inodes": inodes,
            "whiteouts": sorted(extraction.whiteouts),
            "opaques": sorted(extraction.opaques),
        }
        json.dump(result, record)
        record.flush()
        libc.syncfs(record.fileno())


def _extract(stream: BlobStream, extraction: Extraction) -> None:
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_BUFFER_BYTES) as archive:
        while (entry := archive.next()) is not None:
            extraction.add(archive, entry)
            # The archive would keep every entry in memory.
            archive.members.clear()  # type: ignore[attr-defined]


def main() -> int:
    """Return exit status 0, or 1 with `error` and whether the disk is `full` on stdout."""
    try:
        run(json.load(sys.stdin))
    except (
        LayerError, tarfile.TarError, ValueError, OverflowError, MemoryError, RecursionError,
    ) as error:  # fmt: skip
        outcome = {"error": str(error) or type(error).__name__, "full": False}
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        outcome = {"error": str(error), "full": is_full}
    else:
        return 0
    sys.stdout.write(json.dumps(outcome))
    return 1


if __name__ == "__main__":
    sys.exit(main())
