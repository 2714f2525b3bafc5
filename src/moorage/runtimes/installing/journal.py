"""Journal of a change of runtimes: what an interrupted one leaves for the next run to undo.

It is on disk before anything is changed and gone after all is proven, so a process that is killed
at any point leaves either nothing changed or a journal that says how it was before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from moorage.linux.atomic_file import replace_file, sync_directory, write_durably
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.errors import RuntimeInstallationError

_NAME = "journal.json"
_MODE = 0o644
# A configuration has kilobytes.
_MOST_BYTES = 64 * 1024 * 1024


class Stage(StrEnum):
    """How far a change has come: nothing but a new version, files, or the engine's use of them."""

    STORING = "storing"
    WRITING = "writing"
    USED = "used"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is under way.

    `directory` is that of a version which did not exist before, empty without one. `offered` are
    the handlers that the engine had before, `restart` is the command that restarts it.
    """

    handler: str
    verb: str
    stage: Stage
    directory: str = ""
    changes: tuple[FileChange, ...] = ()
    offered: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


class Journal:
    """The journal below a directory of runtimes. Its methods block and raise OSError."""

    def __init__(self, store: Path) -> None:
        self._path = store / _NAME

    def read(self) -> Entry | None:
        """Return the change that was interrupted, None without one.

        Raises RuntimeInstallationError if the file is damaged.
        """
        try:
            with self._path.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=Entry, dec_hook=_path)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise RuntimeInstallationError(
                f"{self._path}, the record of an interrupted change, is damaged ({error}): look at "
                "the engine's configuration, then remove the record"
            ) from error

    def write(self, entry: Entry) -> None:
        """Record a change, or its next stage."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_durably(self._path, msgspec.json.encode(entry, enc_hook=str))

    def clear(self) -> None:
        """Remove the record of a change that is complete, or undone."""
        self._path.unlink(missing_ok=True)
        if self._path.parent.exists():
            sync_directory(self._path.parent)


def write_changes(changes: Iterable[FileChange]) -> None:
    """Write files, each at once or not at all. Blocks.

    Raises RuntimeInstallationError if a file is not as it was when the change was decided, with the
    files before it written; OSError.
    """
    for change in changes:
        present = _read(change.path)
        if present != change.before:
            raise RuntimeInstallationError(
                f"{change.path} was changed by another program meanwhile; try again"
            )
        _write(change.path, change.after)


def restore_changes(changes: Iterable[FileChange]) -> None:
    """Write back what files had before, whether or not they were changed. Blocks.

    Raises RuntimeInstallationError if another program changed one in between, OSError.
    """
    for change in reversed(tuple(changes)):
        present = _read(change.path)
        if present == change.before:
            continue
        if present != change.after:
            raise RuntimeInstallationError(
                f"{change.path} was changed by another program since: take out what `moor runtime` "
                f"wrote into it by hand, then remove {_NAME} in the directory of runtimes"
            )
        _write(change.path, change.before)


def _path(kind: type, text: str) -> Path:
    if kind is not Path:
        raise NotImplementedError(kind)
    return Path(text)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
        if path.parent.exists():
            sync_directory(path.parent)
        return
    # The target of a link is replaced, not the link.
    path = path.resolve()
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    mode, owner = _MODE, None
    if path.exists():
        status = os.stat(path)
        mode, owner = status.st_mode & 0o777, (status.st_uid, status.st_gid)
    replace_file(path, content, mode=mode, is_synced=True, owner=owner)
    sync_directory(path.parent)
