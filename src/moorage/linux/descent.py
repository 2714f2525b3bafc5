"""Directory descent by descriptors, to any depth and with few of them open.

Recursion, a descriptor for each level, and whole paths each fail at a depth that any writer can
exceed: Python's stack, the limit of open files, PATH_MAX. So only the deepest levels stay open; a
level above is reopened through `..` and compared with what it was on the way down. Symlinks are
never followed, mount points only on request. Imports the standard library and its neighbours alone,
for the program that unpacks layers. Source: openat(2), path_resolution(7); fts(3).
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import Self

from moorage.linux.descriptors import NO_MAGICLINKS, NO_SYMLINKS, NO_XDEV, openat2

OPEN_LEVELS = 32
"""How many levels below the root of a descent are open at most."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_WITHIN_MOUNT = NO_XDEV | NO_SYMLINKS | NO_MAGICLINKS


class Descent:
    """A position in a tree, starting at its root. `with` closes its descriptors."""

    def __init__(self, root: int, *, crosses_mounts: bool = False) -> None:
        """Start at a directory's descriptor, which the caller closes afterwards."""
        self._root = root
        self._crosses_mounts = crosses_mounts
        self._names: list[str] = []
        self._identities: list[tuple[int, int]] = []
        # The deepest levels, without gaps; without the root.
        self._open: deque[int] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.restart()

    @property
    def directory(self) -> int:
        """The descriptor of the current directory, valid until the next move."""
        return self._open[-1] if self._open else self._root

    @property
    def depth(self) -> int:
        """How many levels the current directory is below the root."""
        return len(self._names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names from the root to the current directory."""
        return tuple(self._names)

    def enter(self, name: str) -> os.stat_result:
        """Enter a subdirectory. Returns its status.

        Raises OSError and stays: ENOTDIR or ELOOP for what is not a directory, EXDEV for a mount
        point, EACCES.
        """
        descriptor = self._opened(name)
        try:
            status = os.fstat(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._open.append(descriptor)
        self._names.append(name)
        self._identities.append((status.st_dev, status.st_ino))
        if len(self._open) > OPEN_LEVELS:
            os.close(self._open.popleft())
        return status

    def leave(self) -> str | None:
        """Go up to the parent. Returns the name of the directory that was left.

        If the parent was moved meanwhile, goes up to the nearest ancestor that was not, and returns
        None; `depth` says which.
        """
        name = self._names.pop()
        self._identities.pop()
        below = self._open.pop()
        try:
            if self._open or not self._names:
                return name
            parent = _parent(below, self._identities[-1])
        finally:
            os.close(below)
        if parent is not None:
            self._open.append(parent)
            return name
        depth = self.depth
        self._find_again()
        return name if self.depth == depth else None

    def restart(self) -> None:
        """Go back to the root."""
        while self._open:
            os.close(self._open.pop())
        self._names.clear()
        self._identities.clear()

    def _opened(self, name: str) -> int:
        if not self._crosses_mounts:
            try:
                return openat2(self.directory, name, _DIRECTORY, _WITHIN_MOUNT)
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
        descriptor = os.open(name, _DIRECTORY, dir_fd=self.directory)
        if not self._crosses_mounts and mount_id(descriptor) != mount_id(self.directory):
            os.close(descriptor)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        return descriptor

    def _find_again(self) -> None:
        """Reopen the levels above by name, as far as they are still the same directories."""
        names, identities = self._names, self._identities
        self._names, self._identities = [], []
        for name, identity in zip(names, identities, strict=True):
            try:
                status = self.enter(name)
            except OSError:
                return
            if (status.st_dev, status.st_ino) != identity:
                os.close(self._open.pop())
                self._names.pop()
                self._identities.pop()
                return


def mount_id(descriptor: int) -> bytes:
    """Return the id of an open file's mount. Raises OSError. Source: proc(5), fdinfo."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as info:
        for line in info:
            if line.startswith(b"mnt_id:"):
                return line
    raise OSError(errno.ENOSYS, "the kernel does not report mount ids")


def _parent(directory: int, identity: tuple[int, int]) -> int | None:
    """Open the parent of a directory; None if it has another device and inode."""
    try:
        parent = os.open("..", _DIRECTORY, dir_fd=directory)
    except OSError:
        return None
    status = os.fstat(parent)
    if (status.st_dev, status.st_ino) == identity:
        return parent
    os.close(parent)
    return None
