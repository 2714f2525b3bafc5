"""Overlay support of a directory's file system, tested by mounting one.

The kernel refuses an overlay on an overlay (a data directory inside a container) only when it is
mounted, and support for another file system below one depends on its features.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from moorage.linux.mounts import mount, unmount
from moorage.linux.trees import remove_tree

_DIRECTORIES = ("lower", "upper", "work", "merged")


def supports_overlay(directory: Path) -> bool:
    """Return whether an overlay with its layers in a directory can be mounted.

    False without the privilege. The directory must exist. Leaves nothing behind.
    """
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".overlay-", dir=directory))
    except OSError:
        return False
    try:
        lower, upper, work, merged = (scratch / name for name in _DIRECTORIES)
        try:
            for path in (lower, upper, work, merged):
                path.mkdir()
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            mount("overlay", merged, "overlay", options)
        except OSError:
            return False
        unmount(merged)
        return True
    finally:
        remove_tree(scratch)
