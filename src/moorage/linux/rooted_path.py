"""Rooted path: what a path is for a process with another root, by its own symlinks.

`/proc/PID/root` leads into another process's files, but the kernel follows an absolute symlink on
the way from the root of who asks: a container's file system could have a path lead to the asker's
own files. Here each name is opened by itself, and links are followed inside the root. Source:
proc(5) `/proc/PID/root`, openat2(2) RESOLVE_IN_ROOT.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Self

from moorage.linux.descriptors import IN_ROOT, NO_MAGICLINKS, openat2

# Root-confined path resolution: links in a tree cannot lead out of it.
#
# Links in an image are chosen by its author: `/etc/passwd` may point at a file of the host, or be
# a FIFO. Each link is resolved as if the tree were `/`. `open_in_root` has the kernel resolve, so
# that the tree may change meanwhile; `resolve_in_root` works on any kernel, for a tree in which
# nothing runs yet. Source: openat2(2) RESOLVE_IN_ROOT; the securejoin library of runc and CRI-O.

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


_NO_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def stat_in_root(root: Path, path: Path) -> os.stat_result:
    """Return the status of an absolute path for a process with that root directory. Blocks.

    Raises OSError: FileNotFoundError and NotADirectoryError as stat(2), ELOOP above 40 links.
    """
    with _Way(root, path) as way:
        way.follow()
        return os.fstat(way.opened[-1])


def path_in_root(root: Path, path: Path) -> Path:
    """Return where an absolute path is for this program, without links above its last name. Blocks.

    The last name may be a link itself. Names below one that does not exist, or that is no
    directory, stay as they are. Raises OSError: ELOOP above 40 links, EACCES.
    """
    with _Way(root, path) as way:
        with suppress(FileNotFoundError, NotADirectoryError):
            way.follow(is_last_kept=True)
        return root.joinpath(*way.names, *way.pending)


class _Way:
    """Names of a path that were opened below a root, and those still to be opened."""

    def __init__(self, root: Path, path: Path) -> None:
        self._path = path
        self.pending = deque(_names(path))
        self.names: list[str] = []
        self.opened = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._return_to(-1)

    def follow(self, *, is_last_kept: bool = False) -> None:
        """Open name after name; one that cannot be opened stays the first of those pending."""
        links = 0
        while self.pending:
            name = self.pending[0]
            if name == "..":
                self.pending.popleft()
                self._return_to(max(0, len(self.names) - 1))
                continue
            if is_last_kept and len(self.pending) == 1:
                return
            found = os.open(name, _NO_LINK, dir_fd=self.opened[-1])
            self.pending.popleft()
            self.opened.append(found)
            self.names.append(name)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self._path))
            target = PurePath(os.readlink("", dir_fd=found))
            self._return_to(0 if target.is_absolute() else len(self.names) - 1)
            self.pending.extendleft(reversed(_names(target)))

    def _return_to(self, depth: int) -> None:
        """Close what is deeper than so many names below the root."""
        while len(self.opened) > depth + 1:
            os.close(self.opened.pop())
        del self.names[max(0, depth) :]


def _names(path: PurePath) -> list[str]:
    return [name for name in path.parts if name != "/"]
