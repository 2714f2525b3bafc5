"""Atomic file replacement: a reader, or a process after a crash, sees the old content or the new.

Source: fsync(2), rename(2).
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o600,
    is_synced: bool = False,
    writer: str = "",
    owner: tuple[int, int] | None = None,
) -> None:
    """Write a file with exactly that mode beside its target, and rename it into place.

    With `is_synced` the content is on disk before the rename, but not the rename itself. Concurrent
    writers of one file must take turns, or pass different `writer` names. `owner` is the user and
    group that the file gets, by default those of the process. Blocks. Raises OSError; the old file
    stays then.
    """
    tag = f".{writer}" if writer else ""
    scratch = path.with_name(f".{path.name}{tag}.new")
    descriptor = _create(scratch, mode & 0o700)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(descriptor)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _create(scratch: Path, mode: int) -> int:
    """Create a file, in place of one that an interruption left, or that someone else put there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(scratch, flags, mode)
    except FileExistsError:
        scratch.unlink()
        return os.open(scratch, flags, mode)


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file, readable by its owner only, and sync content and name to the disk.

    Blocks. Raises OSError.
    """
    replace_file(path, content, is_synced=True)
    sync_directory(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file or directory whose content is synced, and sync the name. Blocks.

    Raises OSError.
    """
    source.rename(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory to the disk. Blocks. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
