"""Snapshotter protocol: from layers to a container's root filesystem.

An implementation is synchronous, keeps no state in memory, and owns a directory (`home`) for each
root filesystem. The caller unmounts the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from moorage.linux.idmap import IdMappings
from moorage.linux.mounts import MountSource


class Snapshotter(Protocol):
    """Layers are directories of the store (see `layers`), from the bottom up."""

    def mount(
        self, home: Path, layers: Sequence[Path], target: Path, mappings: IdMappings | None
    ) -> None:
        """Mount the layers writable at `target`; earlier writes are kept.

        With mappings, owners are those of the user namespace. Blocks. Raises OSError; nothing is
        mounted then.
        """

    def mount_read_only(self, home: Path, layers: Sequence[Path], target: Path) -> None:
        """Mount the layers read-only at `target`. Blocks. Raises OSError."""

    def sources(self, home: Path, layers: Sequence[Path]) -> tuple[MountSource, ...]:
        """Return the mount of `mount` without mappings, for a runtime that mounts it itself.

        Empty where it cannot be said in words that mount(2) takes in any directory.
        """

    def writable(self, home: Path) -> Path:
        """Return the directory of the data that a writable mount's container wrote."""
