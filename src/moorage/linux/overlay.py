"""Whether overlay mounts work on a directory's file system: tried, since no flag tells.

An overlay on an overlay (a data directory inside a container) is refused by the kernel only when
mounted, and whether another file system can be below one depends on its features.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from moorage.linux.mounts import mount, unmount
from moorage.linux.trees import remove_tree

_DIRECTORIES = ("lower", "upper", "work", "merged")


def supports_overlay(directory: Path) -> bool:
    """Whether an overlay with its layers in that directory can be mounted; false without the right
    to.

    The directory must exist. Leaves nothing behind.
    """
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".overlay-", dir=directory))
    except OSError:
        return False
    try:
        lower, upper, work, merged = (scratch / name for name in _DIRECTORIES)
        try:
            for each in (lower, upper, work, merged):
                each.mkdir()
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            mount("overlay", merged, "overlay", options)
        except OSError:
            return False
        unmount(merged)
        return True
    finally:
        remove_tree(scratch)
