"""Which changes in which directories concern a set of handlers.

A directory of handler files concerns them wholly; of a directory of programs only the programs'
names do. What does not exist yet is awaited in the nearest directory above it that does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from moorage.linux.inotify import DirectoryChange


class WatchSet:
    """Directories to watch, each with the names that count in it."""

    def __init__(self) -> None:
        self._names: dict[Path, set[str]] = {}
        self._whole: set[Path] = set()

    @property
    def directories(self) -> frozenset[Path]:
        return frozenset(self._whole | self._names.keys())

    def add_directory(self, directory: Path) -> None:
        """Everything in a directory, and the directory itself once it comes."""
        self._whole.add(_real(directory))
        # A directory that is removed and made again, or is a link that is set anew, is seen above.
        for each in _with_links(directory):
            self._add_entry(each)

    def add_program(self, spelled: str, search_path: str) -> None:
        """A program, wherever on the search path it is or may come, and what it is a link to."""
        if os.sep in spelled:
            places: list[Path] = [Path(spelled)]
        else:
            places = [Path(each) / spelled for each in search_path.split(os.pathsep) if each]
        for place in places:
            for each in _with_links(place):
                self._add_entry(each)

    def concerns(self, changes: Iterable[DirectoryChange]) -> bool:
        """Whether any of the changes can matter."""
        return any(
            change.is_uncertain
            or not change.name
            or change.directory in self._whole
            or change.name in self._names.get(change.directory, ())
            for change in changes
        )

    def _add_entry(self, path: Path) -> None:
        missing = path
        for above in path.parents:
            if above.is_dir():
                # The kernel tells of a directory once, by whichever name it was watched last.
                self._names.setdefault(_real(above), set()).add(missing.name)
                return
            missing = above


def watch_set_of(
    directories: Iterable[Path], programs: Iterable[str], search_path: str
) -> WatchSet:
    """The interest in directories of handler files and in the programs these name."""
    interest = WatchSet()
    for directory in directories:
        interest.add_directory(directory)
    for program in programs:
        interest.add_program(program, search_path)
    return interest


def _with_links(path: Path) -> Iterator[Path]:
    """The path, and where it leads to by links."""
    yield path
    target = _real(path)
    if target != path:
        yield target


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
