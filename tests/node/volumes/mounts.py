"""A mount table that only remembers: binds become links, so that tests need no privileges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class FakeMounter:
    """Keeps what was mounted where. A bind shows its source's real path."""

    def __init__(self) -> None:
        self.sizes: dict[Path, int] = {}
        self.binds: dict[Path, Path] = {}
        self.without_programs: set[Path] = set()

    def mount_tmpfs(self, target: Path, size_bytes: int, *, has_programs: bool = True) -> None:
        if not has_programs:
            self.without_programs.add(target)
        self.sizes[target] = size_bytes

    def bind(self, source: str, target: Path) -> None:
        self.binds[target] = Path(os.path.realpath(source))

    def isolate_below(self, path: Path) -> None:
        """Binds here are links, which propagate nothing."""

    def unmount(self, target: Path) -> None:
        self.sizes.pop(target, None)
        self.binds.pop(target, None)

    def is_mounted(self, target: Path) -> bool:
        return target in self.sizes or target in self.binds

    def mounts_below(self, path: Path) -> Iterator[Path]:
        below = [point for point in (*self.sizes, *self.binds) if point.is_relative_to(path)]
        return iter(sorted(below, key=lambda point: len(point.parts), reverse=True))
