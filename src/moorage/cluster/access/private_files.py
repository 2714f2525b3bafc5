"""Private files: secrets that only their owner can read."""

from __future__ import annotations

from pathlib import Path

from moorage.linux.atomic_file import replace_file


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically and synced, readable by its owner only. Raises OSError."""
    replace_file(path, content, is_synced=True)
