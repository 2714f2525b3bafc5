"""Journal of a change of runtimes: what an interrupted one leaves for the next run to undo.

It is on disk before anything is changed and gone after all is proven, so a process that is killed
at any point leaves either nothing changed or a journal that says how it was before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.linux.atomic_file import replace_file, sync_directory, write_durably
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.engines import FileChange

# Made directories: those of the host that exist only for runtimes that were installed.
#
# They are recorded before they are made, and removed once they are empty: those of drop-ins, and
# those that a kubelet makes because the agent mounts them.

_DIRECTORIES_NAME = ".directories.json"
_SAME_MOMENT_S = 60.0
_KEPT = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EROFS)

log = Log(__name__)


class MadeDirectories:
    """The record below a directory of runtimes. Methods block and raise OSError."""

    def __init__(self, store: Path) -> None:
        self._path = store / _DIRECTORIES_NAME

    @property
    def is_recorded(self) -> bool:
        """Whether there is a record, if only of no directory."""
        return self._path.exists()

    def all(self) -> tuple[Path, ...]:
        """Return the directories, those inside others after them; none if damaged."""
        try:
            names = msgspec.json.decode(self._path.read_bytes(), type=list[str])
        except FileNotFoundError:
            return ()
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("record of made directories is damaged", path=self._path, reason=error)
            return ()
        return tuple(sorted(map(Path, names)))

    def note(self, directories: Iterable[Path]) -> None:
        """Record directories that are about to be made, or that were made for us."""
        before = self.all()
        after = sorted({*before, *directories})
        if tuple(after) != before or not self.is_recorded:
            self._write(after)

    def remove_empty(self, place: Callable[[Path], Path] = lambda path: path) -> list[Path]:
        """Remove those that are empty, and return those that stay.

        `place` gives the path of a directory of the host for this program.
        """
        before = self.all()
        kept = [path for path in reversed(before) if not _is_removed(place(path))]
        if len(kept) != len(before):
            self._write(kept)
        return kept

    def _write(self, directories: Sequence[Path]) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_durably(self._path, msgspec.json.encode([str(path) for path in directories]))


def missing_above(files: Iterable[Path]) -> list[Path]:
    """Return the directories that do not exist yet above files. Blocks. Raises OSError."""
    return [
        directory
        for path in files
        for directory in path.resolve().parents
        if not directory.exists()
    ]


def made_with(pod: Path, directories: Iterable[Path]) -> list[Path]:
    """Return the empty directories that were made when a pod's own one was. Blocks.

    A kubelet makes a host's directory that a pod mounts (`DirectoryOrCreate`) when it makes the
    pod's `emptyDir`; an empty directory that was there before is older. Raises OSError.
    """
    since = os.stat(pod).st_ctime
    return [
        path
        for path in directories
        if path.is_dir()
        and abs(path.stat().st_ctime - since) <= _SAME_MOMENT_S
        and not any(path.iterdir())
    ]


def _is_removed(path: Path) -> bool:
    """Remove a directory; return whether it is gone, as one with content, or mounted, is not.

    Where a file or a link has taken its place, it is gone, and that stays.
    """
    try:
        path.rmdir()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        if error.errno in _KEPT:
            return False
        raise
    return True


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
