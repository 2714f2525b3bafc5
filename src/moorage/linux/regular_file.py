"""Opening of regular files at paths where a container may put something else.

A pipe blocks its opener, a device may act when it is opened (a watchdog starts), and a symbolic
link leads to any file of the host. Source: open(2), O_PATH; proc(5), /proc/pid/fd.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_REFUSED = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}
_MAKERS = os.O_CREAT | os.O_EXCL


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
