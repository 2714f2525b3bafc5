"""Size limits of images on disk.

A small layer can unpack to any number of bytes: by compression, sparse entries or entries without
content. So bytes and entries are counted while it is unpacked, and a part of the disk stays free.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.images.image import MalformedImageError

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Limits for each image: bytes and entries of all its layers when unpacked, and number of
    layers.

    `depth` is the number of names in a path, `xattr_bytes` the size of all attributes of one entry.
    `free_bytes` of the disk stay free, or a twentieth of it where that is less.
    """

    unpacked_bytes: int = 128 * _GIB
    entries: int = 4_000_000
    layers: int = 500
    depth: int = 1024
    xattr_bytes: int = 128 << 10
    free_bytes: int = _GIB

    def reserve_bytes(self, place: Path) -> int:
        """Return how many bytes of a directory's disk must stay free. Raises OSError."""
        file_system = os.statvfs(place)
        return min(self.free_bytes, file_system.f_blocks * file_system.f_frsize // 20)

    def check_layers(self, count: int) -> None:
        """Raise MalformedImageError for an image with more layers than the limit."""
        if count > self.layers:
            raise MalformedImageError(
                f"it has {count} layers, more than {self.layers}; merge some of them"
            )


def in_words(size_bytes: int) -> str:
    """Return a size with its unit: `128 GiB`."""
    for unit, name in ((_GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} bytes"
