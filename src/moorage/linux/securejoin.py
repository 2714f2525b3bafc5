"""Root-confined path resolution: links in a tree cannot lead out of it.

Links in an image are chosen by its author: `/etc/passwd` may point at a file of the host, or be a
FIFO. Each link is resolved as if the tree were `/`. `open_in_root` has the kernel resolve, so that
the tree may change meanwhile; `resolve_in_root` works on any kernel, for a tree in which nothing
runs yet. Source: openat2(2) RESOLVE_IN_ROOT; the securejoin library of runc and CRI-O.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath

from moorage.linux.openat import IN_ROOT, NO_MAGICLINKS, openat2

_MAX_LINKS = 40


def open_in_root(root: Path, path: str) -> int:
    """Return an O_PATH descriptor of a path inside `root`. Needs Linux 5.6.

    Raises OSError.
    """
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        return openat2(directory, path, os.O_PATH, IN_ROOT | NO_MAGICLINKS)
    finally:
        os.close(directory)


def read_in_root(root: Path, path: str, max_bytes: int) -> str:
    """Return the text of a regular file inside `root`. Blocks.

    Raises FileNotFoundError, NotADirectoryError, OSError: ELOOP for too many links, EFBIG above
    `max_bytes`, EINVAL for what is not a regular file.
    """
    opened = os.open(resolve_in_root(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
        with os.fdopen(opened, "rb", closefd=False) as file:
            return file.read(max_bytes).decode(errors="replace")
    finally:
        os.close(opened)


def resolve_in_root(root: Path, path: str) -> Path:
    """Return where a path inside `root` leads, with every link resolved inside it. Blocks.

    Raises OSError with ELOOP for too many links.
    """
    pending = list(reversed(PurePosixPath(path).parts))
    resolved: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part in ("/", "."):
            resolved = [] if part == "/" else resolved
        elif part == "..":
            del resolved[-1:]
        else:
            target = _link_target(root.joinpath(*resolved, part))
            if target is None:
                resolved.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, "too many levels of symbolic links", path)
            pending.extend(reversed(PurePosixPath(target).parts))
    return root.joinpath(*resolved)


def _link_target(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
