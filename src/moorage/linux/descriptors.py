"""Descriptors of this process: their limit, and safe ways to open. Source: getrlimit(2)."""

from __future__ import annotations

import errno
import os
import re
import resource
import stat
import struct
from pathlib import Path

from moorage.linux import libc

# Opening of regular files at paths where a container, or an archive, may put something else.
#
# A pipe blocks its opener, a device may act when it is opened (a watchdog starts), and a symbolic
# link leads to any file of the host. Source: open(2), O_PATH; proc(5), /proc/pid/fd.

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


# openat2(2): open a path with constraints on its resolution.
#
# Needs Linux 5.6. Source: openat2(2), linux/openat2.h.

NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, IN_ROOT = 0x01, 0x02, 0x04, 0x10
"""RESOLVE_*: cross no mount point (bind mounts too), follow no magic link, follow no symlink, treat
the directory as the root.
"""

_SYS_OPENAT2 = 437


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open a path relative to a directory's descriptor; O_CLOEXEC is always set.

    Returns the descriptor. Raises OSError: EXDEV where NO_XDEV or IN_ROOT stopped it, ELOOP for a
    link that must not be followed.
    """
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    return libc.syscall(_SYS_OPENAT2, path, directory, os.fsencode(path), how, len(how))


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one. Returns the new limit.

    Not for processes that start containers: those inherit it, and programs that close every
    descriptor up to the limit take minutes for that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptor_limit() -> int:
    """Return the current limit of open descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
