"""Giving a volume to the pod's group.

Source: core/v1 `fsGroup` and `fsGroupChangePolicy`, kubelet `volume_linux.go`: the group owns
every file and may do what the owner may, directories pass the group on.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

ON_ROOT_MISMATCH = "OnRootMismatch"

_READ_WRITE = 0o660
_READ = 0o440
_DIRECTORY = stat.S_ISGID | 0o110


def give_to_group(root: Path, group: int, *, is_read_only: bool, policy: str | None) -> None:
    """Change group and mode of everything in a volume. Blocks; raises OSError."""
    if policy == ON_ROOT_MISMATCH and _is_right(root, group, is_read_only):
        return
    # The root last: while it is wrong, an interrupted change is taken up again.
    for directory, names, files in os.walk(root, topdown=False):
        for name in (*files, *names):
            _give(Path(directory) / name, group, is_read_only)
    _give(root, group, is_read_only)


def _give(path: Path, group: int, is_read_only: bool) -> None:
    os.chown(path, -1, group, follow_symlinks=False)
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return
    path.chmod(stat.S_IMODE(info.st_mode) | _mask(info.st_mode, is_read_only))


def _is_right(root: Path, group: int, is_read_only: bool) -> bool:
    info = root.stat()
    mask = _mask(info.st_mode, is_read_only)
    return info.st_gid == group and info.st_mode & mask == mask


def _mask(mode: int, is_read_only: bool) -> int:
    mask = _READ if is_read_only else _READ_WRITE
    return mask | _DIRECTORY if stat.S_ISDIR(mode) else mask
