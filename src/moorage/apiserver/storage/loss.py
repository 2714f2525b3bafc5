"""Loss detection: compares a database with the identity and revision in its mark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from moorage.apiserver.storage import database
from moorage.apiserver.storage.mark import Recorded, read_mark
from moorage.apiserver.storage.store import StoreBrokenError


def check_kept(path: Path, mark_path: Path) -> None:
    """Raise StoreBrokenError if a database that is not being served is not what its mark records.

    Blocks. The store checks the same at its start; this reports it to the caller at once.
    """
    mark = read_mark(mark_path)
    check_made(path, mark_path, mark)
    if mark is None:
        return
    try:
        with closing(database.connect_to_read(path)) as connection:
            identity, revision = database.extent(connection)
    except sqlite3.Error as error:
        if database.is_disk_full(error):
            return  # The store has a reserve to open itself with.
        raise StoreBrokenError(f"{path} cannot be opened: {error}") from error
    check_current(path, mark_path, mark, Recorded(identity, revision))


def check_made(path: Path, mark_path: Path, mark: Recorded | None) -> None:
    """Raise StoreBrokenError if the mark records a database that is gone."""
    if mark is not None and not path.exists():
        raise StoreBrokenError(
            f"{path} is gone, but {mark_path} records that it was made and held revision "
            f"{mark.revision}; put it and {path.name}-wal back from a copy, or start an empty "
            "cluster, which ends the pods that run, with `moor up --accept-loss`"
        )


def check_current(path: Path, mark_path: Path, mark: Recorded | None, present: Recorded) -> None:
    """Raise StoreBrokenError if a database is another or an older one than its mark records."""
    if mark is None:
        return
    if present.identity != mark.identity:
        raise StoreBrokenError(
            f"{path} is {present.identity}, but {mark_path} records {mark.identity}: it was "
            f"replaced by another, or {path.name}-wal is missing; put the right files back, or go "
            "on with what is there with `moor up --accept-loss`"
        )
    if present.revision < mark.revision:
        raise StoreBrokenError(
            f"{path} ends at revision {present.revision}, but revision {mark.revision} was "
            f"acknowledged ({mark_path}): it is an older copy, or {path.name}-wal is missing; put "
            "the newest files back, or go on without what is lost with `moor up --accept-loss`"
        )
