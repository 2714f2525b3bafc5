"""Private directories and files, which other users of the host cannot reach.

    0700  a directory for its owner alone
    0710  one that root of a user namespace may search, by its group on the host
    0711  one that leads to such directories: any user may search but not list it
    0600  a file

Modes are exact whatever the umask, and those of existing directories are tightened.
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
"""For a process that creates such files."""

_FOR_GROUP = 0o710


def make_private(path: Path, mode: int = PRIVATE) -> None:
    """Create a directory and its parents, or tighten an existing one.

    A directory with the sticky bit, as /tmp, is shared and left alone. Raises OSError.
    """
    make_directories(path, mode)
    present = os.stat(path).st_mode
    if present & stat.S_ISVTX or stat.S_IMODE(present) == mode:
        return
    path.chmod(mode)


def make_private_for(path: Path, mappings: IdMappings | None) -> None:
    """Create a private directory that root of a user namespace may search too.

    Without mappings only its owner may. Raises OSError.
    """
    make_private(path)
    if mappings is not None:
        os.chown(path, -1, mappings.root[1])
        path.chmod(_FOR_GROUP)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, without a sync. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != PRIVATE_FILE:
            os.fchmod(descriptor, PRIVATE_FILE)
        file.write(content)
