"""Volume ownership by the pod's fsGroup.

Source: core/v1 `fsGroup` and `fsGroupChangePolicy`, kubelet `volume_linux.go`: the group owns every
file and has the owner's permissions, directories have the set-group-ID bit.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from moorage.linux.trees import Step, walk

ON_ROOT_MISMATCH = "OnRootMismatch"

_READ_WRITE = 0o660
_READ = 0o440
_DIRECTORY = stat.S_ISGID | 0o110


def give_to_group(root: Path, group: int, *, is_read_only: bool, policy: str | None) -> None:
    """Change group and mode of everything in a volume. Blocks. Raises OSError."""
    if policy == ON_ROOT_MISMATCH and _is_right(root, group, is_read_only):
        return
    # The root last: while it does not match, an interrupted change is started again.
    for visit in walk(root):
        if visit.step is not Step.ENTER:
            _give(visit.directory, visit.name, group, is_read_only)


def _give(directory: int, name: str, group: int, is_read_only: bool) -> None:
    """Change one entry, safe against its replacement by a link."""
    try:
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        return
    try:
        mode = os.fstat(entry).st_mode
        itself = f"/proc/self/fd/{entry}"
        os.chown(itself, -1, group)
        if not stat.S_ISLNK(mode):
            os.chmod(itself, stat.S_IMODE(mode) | _mask(mode, is_read_only))
    finally:
        os.close(entry)


def _is_right(root: Path, group: int, is_read_only: bool) -> bool:
    info = root.stat()
    mask = _mask(info.st_mode, is_read_only)
    return info.st_gid == group and info.st_mode & mask == mask


def _mask(mode: int, is_read_only: bool) -> int:
    mask = _READ if is_read_only else _READ_WRITE
    return mask | _DIRECTORY if stat.S_ISDIR(mode) else mask
