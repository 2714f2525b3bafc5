"""Directories in one another, as a hostile container makes them."""

from __future__ import annotations

import os
from pathlib import Path


def nest(root: Path, depth: int, *, name: str = "directory-with-a-name") -> None:
    """Make directories in one another, deeper than a path can be."""
    root.mkdir(exist_ok=True)
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=place)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = below
    os.close(os.open("last", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)
