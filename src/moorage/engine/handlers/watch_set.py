"""Watch set: the directory changes that can affect a set of handlers.

Every change in a directory of handler files is relevant; in a directory of programs only changes of
the programs' names are. A missing path is watched in its nearest existing parent directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from moorage.linux.inotify import DirectoryChange


class WatchSet:
    """Directories to watch, each with the relevant entry names."""

    def __init__(self) -> None:
        self._names: dict[Path, set[str]] = {}
        self._whole: set[Path] = set()

    @property
    def directories(self) -> frozenset[Path]:
        """Directories to watch."""
        return frozenset(self._whole | self._names.keys())

    def add_directory(self, directory: Path) -> None:
        """Add every entry of a directory, and the directory itself, which may be created later."""
        self._whole.add(_real(directory))
        # Removal, re-creation and retargeting of a link are seen in the parent directory.
        for path in _with_links(directory):
            self._add_entry(path)

    def add_program(self, spelled: str, search_path: str) -> None:
        """Add a program at each place on the search path, existing or not, and its link target."""
        if os.sep in spelled:
            places: list[Path] = [Path(spelled)]
        else:
            places = [
                Path(directory) / spelled
                for directory in search_path.split(os.pathsep)
                if directory
            ]
        for place in places:
            for path in _with_links(place):
                self._add_entry(path)

    def concerns(self, changes: Iterable[DirectoryChange]) -> bool:
        """Return whether any of the changes is relevant."""
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
                # inotify reports a directory once, under the name by which it was watched last.
                self._names.setdefault(_real(above), set()).add(missing.name)
                return
            missing = above


def watch_set_of(
    directories: Iterable[Path], programs: Iterable[str], search_path: str
) -> WatchSet:
    """Return the watch set of directories of handler files and of the programs these name."""
    interest = WatchSet()
    for directory in directories:
        interest.add_directory(directory)
    for program in programs:
        interest.add_program(program, search_path)
    return interest


def _with_links(path: Path) -> Iterator[Path]:
    """Yield the path, and its link target if it differs."""
    yield path
    target = _real(path)
    if target != path:
        yield target


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
