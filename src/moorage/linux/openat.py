"""openat2(2): open a path with constraints on its resolution.

Needs Linux 5.6. Source: openat2(2), linux/openat2.h.
"""

from __future__ import annotations

import os
import struct

from moorage.linux import libc

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
