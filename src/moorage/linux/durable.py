"""Files and directories that are there whole after a crash, or not at all.

Source: fsync(2), rename(2).
"""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Put a file in place whole, readable by its owner only. Blocks. Raises OSError.

    Two writers of one file must take turns.
    """
    rename_durably(write_beside(path, content), path)


def write_beside(path: Path, content: bytes) -> Path:
    """Put the content for a file on disk beside it, readable by its owner only; where it is.

    Blocks. Raises OSError.
    """
    scratch = path.with_name(f".{path.name}.new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return scratch


def rename_durably(source: Path, target: Path) -> None:
    """Give a file or directory, whose content is on disk, its name. Blocks. Raises OSError."""
    source.rename(target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
