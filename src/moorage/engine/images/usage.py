"""How much disk folders take. Source: CRI FilesystemUsage; du(1)."""

from __future__ import annotations

import os
from collections.abc import Iterable
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


def taken(folders: Iterable[Path]) -> tuple[int, int]:
    """Bytes on disk and inodes in these folders, themselves included. Blocks.

    Hard links count once; what vanishes meanwhile counts for nothing. Other mounts in the folders
    are left out.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    for top in folders:
        try:
            device = os.lstat(top).st_dev
        except FileNotFoundError:
            continue
        waiting = [str(top)]
        total += _add(os.lstat(top), seen)
        while waiting:
            for entry in _entries(waiting.pop()):
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if found.st_dev != device:
                    continue
                total += _add(found, seen)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total, len(seen)


def _add(found: os.stat_result, seen: set[tuple[int, int]]) -> int:
    key = (found.st_dev, found.st_ino)
    if key in seen:
        return 0
    seen.add(key)
    return found.st_blocks * 512


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
