"""Opening of regular files at paths where a container, or an archive, may put something else.

A pipe blocks its opener, a device may act when it is opened (a watchdog starts), and a symbolic
link leads to any file of the host. Source: open(2), O_PATH; proc(5), /proc/pid/fd.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

_REFUSED = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}
_MAKERS = os.O_CREAT | os.O_EXCL
_OWN_DESCRIPTOR = re.compile(r"/dev/(?:stdin|fd/[0-9]+)")


class NotRegularError(OSError):
    """A path leads to a pipe, a socket, a device or a directory. `problem` says so."""

    problem = "it is not a regular file"

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, self.problem, str(path))


def read_tail(path: Path, most_bytes: int) -> bytes:
    """Return the last bytes of a regular file, at most `most_bytes`. Raises OSError."""
    descriptor = open_regular_file(path, os.O_RDONLY)
    try:
        start = max(0, os.fstat(descriptor).st_size - most_bytes)
        return os.pread(descriptor, most_bytes, start)
    finally:
        os.close(descriptor)


def open_regular_file(path: Path, flags: int, *, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file, close-on-exec. Does not block.

    With O_CREAT in `flags` an absent file is created with `mode`. Raises OSError: FileNotFoundError
    without the file, ELOOP for a symbolic link, EISDIR for a directory, EINVAL for a pipe, a socket
    or a device.
    """
    while True:
        try:
            place = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            try:
                return os.open(path, flags | _MAKERS, mode)
            except FileExistsError:
                # Another process was faster.
                continue
        try:
            kind = stat.S_IFMT(os.fstat(place).st_mode)
            if kind != stat.S_IFREG:
                number = _REFUSED.get(kind, errno.EINVAL)
                raise OSError(number, os.strerror(number), str(path))
            return os.open(f"/proc/self/fd/{place}", flags & ~_MAKERS)
        finally:
            os.close(place)


def read_regular_file(path: Path, size: int) -> bytes:
    """Return the first `size` bytes of a regular file. Follows symbolic links, does not block.

    What this process has open already, as `/dev/stdin` and `/dev/fd/3` of a shell's process
    substitution, may be a pipe, which is read to its end. Raises NotRegularError, OSError.
    """
    is_own = _OWN_DESCRIPTOR.fullmatch(str(path)) is not None
    descriptor = os.open(path, os.O_RDONLY if is_own else os.O_RDONLY | os.O_NONBLOCK)
    if not is_own and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(size)
