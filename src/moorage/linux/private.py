"""Directories and files that other users of this machine cannot reach.

    0700  a directory for its owner alone
    0710  one that the root user of a user namespace may go through, by its group on the host
    0711  one that leads to such directories: anyone may go through, and sees no names
    0600  a file

Modes are exact whatever the umask, and what is there already is tightened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.linux.trees import make_directories

if TYPE_CHECKING:
    from moorage.linux.idmap import IdMappings

PRIVATE, PASSABLE = 0o700, 0o711
PRIVATE_FILE = 0o600
UMASK = 0o077
"""For a process that makes such files."""

_FOR_GROUP = 0o710


def make_private(path: Path, mode: int = PRIVATE) -> None:
    """Make a directory with those above it, or take away what others may do in it.

    One with the sticky bit is shared by all, as /tmp, and is left alone. Raises OSError.
    """
    make_directories(path, mode)
    present = os.stat(path).st_mode
    if present & stat.S_ISVTX or stat.S_IMODE(present) == mode:
        return
    path.chmod(mode)


def make_private_for(path: Path, mappings: IdMappings | None) -> None:
    """Make a private directory that the root user of a user namespace may go through too.

    Without mappings it is its owner's alone. Raises OSError.
    """
    make_private(path)
    if mappings is not None:
        os.chown(path, -1, mappings.root[1])
        path.chmod(_FOR_GROUP)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; not forced to the disk. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != PRIVATE_FILE:
            os.fchmod(descriptor, PRIVATE_FILE)
        file.write(content)
