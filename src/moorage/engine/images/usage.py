"""How much disk directories take. Source: CRI FilesystemUsage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FilesystemUsage:
    """What is taken on the file system mounted at `mountpoint`, at a moment in Unix nanoseconds."""

    timestamp_ns: int
    mountpoint: Path
    used_bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Disk for images, and for what containers wrote."""

    images: FilesystemUsage
    containers: FilesystemUsage
