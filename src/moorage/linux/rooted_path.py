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
from pathlib import Path, PurePath

_MAX_LINKS = 40
_NO_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def stat_in_root(root: Path, path: Path) -> os.stat_result:
    """Return the status of an absolute path for a process with that root directory. Blocks.

    Raises OSError: FileNotFoundError and NotADirectoryError as stat(2), ELOOP above 40 links.
    """
    opened = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    pending, links = deque(_names(path)), 0
    try:
        while pending:
            name = pending.popleft()
            if name == "..":
                _close_after(opened, max(1, len(opened) - 1))
                continue
            found = os.open(name, _NO_LINK, dir_fd=opened[-1])
            opened.append(found)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = PurePath(os.readlink("", dir_fd=found))
            _close_after(opened, 1 if target.is_absolute() else len(opened) - 1)
            pending.extendleft(reversed(_names(target)))
        return os.fstat(opened[-1])
    finally:
        _close_after(opened, 0)


def _names(path: PurePath) -> list[str]:
    return [name for name in path.parts if name != "/"]


def _close_after(opened: list[int], kept: int) -> None:
    """Close the descriptors beyond the first ones."""
    while len(opened) > kept:
        os.close(opened.pop())
