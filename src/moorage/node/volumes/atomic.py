"""Atomic volume updates: a reader sees the old set of files or the new one, never a mixture.

The visible names are symlinks through `..data`, which points to a directory with the current set;
an update writes a new directory and renames one symlink. Nothing is written when nothing differs.
Source: kubelet `volume/util/atomic_writer.go`, on whose layout programs rely.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from moorage.linux.trees import Step, remove_tree, walk

_DATA = "..data"
_DATA_NEW = "..data_tmp"
_MAX_PATH = 4096
_MAX_NAME = 255
_DIRECTORY_MODE = 0o755


class PayloadError(ValueError):
    """A file name is not allowed in a volume."""


@dataclass(frozen=True, slots=True)
class ProjectedFile:
    """A file of a volume. `owner` is a UID; None leaves it to the agent's user."""

    content: bytes
    mode: int
    owner: int | None = None


Payload = Mapping[str, ProjectedFile]
"""Relative path → file."""

Finish = Callable[[Path], None]
"""Called with the new directory before it becomes visible, to set ownership."""


def write_payload(
    target: Path, payload: Payload, now: datetime, *, finish: Finish | None = None
) -> bool:
    """Make a directory contain exactly these files; return whether anything changed.

    Blocks. Raises PayloadError for a path that leaves the directory, OSError from the file system.
    """
    checked = {_checked(path): file for path, file in payload.items()}
    present = _present(target)
    if present is not None and _is_same(present, checked):
        _link(target, checked)
        return False
    fresh = target / f"..{now:%Y_%m_%d_%H_%M_%S}.{secrets.token_hex(4)}"
    try:
        _write(fresh, checked)
        if finish is not None:
            finish(fresh)
        _point(target, fresh.name)
    except BaseException:
        remove_tree(fresh)
        raise
    _link(target, checked)
    _remove_stale(target, checked, keep=fresh.name)
    return True


def _checked(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute():
        raise PayloadError(f"invalid path: must be relative path: {path}")
    if "\0" in path:
        raise PayloadError(f"invalid path: must not contain NUL: {path}")
    if len(path) > _MAX_PATH or any(len(part.encode()) > _MAX_NAME for part in pure.parts):
        raise PayloadError(f"invalid path: is too long: {path}")
    if ".." in pure.parts:
        raise PayloadError(f"invalid path: must not contain '..': {path}")
    if pure.parts and pure.parts[0].startswith(".."):
        raise PayloadError(f"invalid path: must not start with '..': {path}")
    return pure


def _present(target: Path) -> Path | None:
    """Return the directory of the current set; None before the first."""
    try:
        name = os.readlink(target / _DATA)
    except FileNotFoundError:
        return None
    path = target / name
    return path if path.is_dir() else None


def _is_same(present: Path, wanted: Mapping[PurePosixPath, ProjectedFile]) -> bool:
    if _files_below(present) != {str(path) for path in wanted}:
        return False
    return all((present / path).read_bytes() == file.content for path, file in wanted.items())


def _files_below(root: Path) -> set[str]:
    """Return the relative paths of all entries that are not directories."""
    paths: set[str] = set()
    parts: list[str] = []
    for visit in walk(root):
        if visit.step is Step.OTHER:
            paths.add("/".join((*parts, visit.name)))
        elif visit.name == ".":
            continue
        elif visit.step is Step.ENTER:
            parts.append(visit.name)
        else:
            parts.pop()
    return paths


def _write(fresh: Path, files: Mapping[PurePosixPath, ProjectedFile]) -> None:
    directories = {above for path in files for above in path.parents}
    for directory in sorted(directories, key=lambda path: len(path.parts)):
        (fresh / directory).mkdir()
        # Independent of the process's umask.
        (fresh / directory).chmod(_DIRECTORY_MODE)
    for path, file in files.items():
        place = fresh / path
        place.write_bytes(file.content)
        place.chmod(file.mode)
        if file.owner is not None:
            os.chown(place, file.owner, -1)


def _point(target: Path, name: str) -> None:
    link = target / _DATA_NEW
    link.unlink(missing_ok=True)
    link.symlink_to(name)
    link.rename(target / _DATA)


def _link(target: Path, files: Mapping[PurePosixPath, ProjectedFile]) -> None:
    for first in {path.parts[0] for path in files}:
        link = target / first
        if not link.is_symlink():
            link.symlink_to(f"{_DATA}/{first}")


def _remove_stale(target: Path, files: Mapping[PurePosixPath, ProjectedFile], keep: str) -> None:
    """Remove stale names, and every set but the current one: a crash may leave some."""
    wanted = {path.parts[0] for path in files}
    for entry in target.iterdir():
        if entry.is_symlink():
            if not entry.name.startswith("..") and entry.name not in wanted:
                entry.unlink()
        elif entry.name.startswith("..") and entry.name != keep:
            remove_tree(entry)
