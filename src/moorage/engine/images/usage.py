"""Disk usage values. Source: CRI FilesystemUsage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FilesystemUsage:
    """Usage of the file system mounted at `mountpoint`, at a time in Unix nanoseconds."""

    timestamp_ns: int
    mountpoint: Path
    used_bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Usage of images, and of what containers wrote."""

    images: FilesystemUsage
    containers: FilesystemUsage
