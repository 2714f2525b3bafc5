"""Made directories: those of the host that exist only for runtimes that were installed.

They are recorded before they are made, and removed once they are empty: those of drop-ins, and
those that a kubelet makes because the agent mounts them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.linux.atomic_file import write_durably

_NAME = ".directories.json"
_SAME_MOMENT_S = 60.0
_KEPT = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EROFS)

log = Log(__name__)


class MadeDirectories:
    """The record below a directory of runtimes. Methods block and raise OSError."""

    def __init__(self, store: Path) -> None:
        self._path = store / _NAME

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
