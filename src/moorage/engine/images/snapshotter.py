"""How layers become a container's root filesystem: the seam, and who meets it.

An implementation is synchronous, keeps nothing in memory, and owns a directory (`home`) for each
root filesystem; what it mounts is taken away by its caller with an unmount of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from moorage.linux.idmap import IdMappings


class Snapshotter(Protocol):
    """Layers are given as directories of the store (see `layers`), from the bottom up."""

    def mount(
        self, home: Path, layers: Sequence[Path], target: Path, mappings: IdMappings | None
    ) -> None:
        """Show the layers at `target`, writable; what was written before shows again.

        With mappings, owners are shown as those of the user namespace. Blocks. Raises OSError;
        nothing is mounted then.
        """

    def mount_read_only(self, home: Path, layers: Sequence[Path], target: Path) -> None:
        """Show the layers at `target`, for reading. Blocks. Raises OSError."""

    def writable(self, home: Path) -> Path:
        """The directory that takes disk on behalf of a writable mount."""
