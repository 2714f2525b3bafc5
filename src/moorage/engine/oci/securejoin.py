"""Reads a file of a container's root file system without being led out of it.

Links in an image are its author's: `/etc/passwd` may point at a file of the host, or be a pipe
that never ends. Each link is resolved as if the root file system were `/`. Nothing runs in it yet,
so nobody changes it meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath

from moorage.engine.errors import InvalidError

MAX_BYTES = 4 << 20
_MAX_LINKS = 40


def read_in_root(rootfs: Path, name: str) -> str:
    """The text of a file in a root file system, "" when there is no such file. Blocks.

    Raises InvalidError for what is no plain file, or is larger than MAX_BYTES.
    """
    path = resolve_in_root(rootfs, name)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return ""
        raise InvalidError(f"the image's /{name} cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            raise InvalidError(f"the image's /{name} is no plain file of at most {MAX_BYTES} bytes")
        with os.fdopen(opened, "rb", closefd=False) as file:
            return file.read(MAX_BYTES).decode(errors="replace")
    finally:
        os.close(opened)


def resolve_in_root(rootfs: Path, name: str) -> Path:
    """Where a name in a root file system leads to, with every link taken as inside it. Blocks.

    Raises InvalidError for links without end.
    """
    left = list(reversed(PurePosixPath(name).parts))
    reached: list[str] = []
    links = 0
    while left:
        part = left.pop()
        if part in ("/", "."):
            reached = [] if part == "/" else reached
        elif part == "..":
            del reached[-1:]
        else:
            target = _link(rootfs.joinpath(*reached, part))
            if target is None:
                reached.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise InvalidError(f"the image's /{name} has too many levels of symbolic links")
            left.extend(reversed(PurePosixPath(target).parts))
    return rootfs.joinpath(*reached)


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
