"""Fingerprint of a handler: what its probes' results depend on, as one digest.

It covers the handler's definition, the content of its programs, the engine, the kernel and the
suite. A program is read once for each state of its file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from moorage.runtimes.probing.suite import SUITE_VERSION

_CHUNK_BYTES = 1024 * 1024
_REMEMBERED = 256
_LARGEST_BYTES = 1 << 30


class FileState(msgspec.Struct, frozen=True):
    """State of a file; a file in another state may have another content."""

    path: str
    device: int
    inode: int
    modified_ns: int
    changed_ns: int
    size_bytes: int


class Digests:
    """SHA-256 digests of files, remembered by the files' state. Its methods block."""

    def __init__(
        self,
        remembered: Mapping[str, str] | None = None,
        digest: Callable[[Path], str] | None = None,
    ) -> None:
        """`remembered` is what `remembered` returned in an earlier process."""
        self._digest = digest or _digest
        self._digests = dict(remembered or {})

    def of(self, path: Path) -> str:
        """Return the digest of a file in hexadecimal; empty if it cannot be read.

        Only regular files are read, of at most 1 GiB: an engine's configuration may name any path.
        """
        try:
            status = path.stat()
            state = FileState(
                str(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns,
                status.st_size,
            )  # fmt: skip
            key = msgspec.json.encode(state).decode()
            digest = self._digests.pop(key, "") or self._digest(path)
        except OSError:
            return ""
        self._digests[key] = digest
        while len(self._digests) > _REMEMBERED:
            del self._digests[next(iter(self._digests))]
        return digest

    @property
    def remembered(self) -> dict[str, str]:
        """Return the digests for a later process."""
        return dict(self._digests)


def fingerprint(
    *, definition: str, programs: Iterable[str], engine: str, kernel: str, boot_facts: str = ""
) -> str:
    """Return a handler's fingerprint in hexadecimal.

    `definition` is what defines the handler, without its name, so that two names for the same are
    probed once; `programs` are digests. `boot_facts` are facts of the node that verdicts depend on.
    """
    parts = (str(SUITE_VERSION), definition, *programs, engine, kernel, boot_facts)
    encoded = msgspec.json.encode(parts)
    return hashlib.sha256(encoded).hexdigest()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    # A FIFO in the file's place does not block the opening.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            raise OSError(errno.EINVAL, f"{path} is no file of at most {_LARGEST_BYTES} bytes")
        left = status.st_size
        while chunk := file.read(min(_CHUNK_BYTES, left)):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
