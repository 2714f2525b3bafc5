"""Copies of a store: a consistent copy of a database while it is served, and a copy's first start.

The copy is one read transaction (SQLite's VACUUM INTO), so a server may go on writing; every row's
checksum is verified on the copy.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from moorage.apiserver.storage import database
from moorage.apiserver.storage.inspection import inspect
from moorage.apiserver.storage.mark import Recorded, accepted_path, mark_content, read_mark
from moorage.apiserver.storage.store import StoreBrokenError
from moorage.linux.atomic_file import write_durably

_RESTORED_GAP = 1_000_000_000
"""Revisions skipped at a restore: more than can have been given out since the copy was made."""


def copy_database(source: Path, target: Path) -> Recorded:
    """Copy a database, served or not, to a new file; return its identity and last revision.

    Blocks while it reads the database. The checkpoint of the log waits meanwhile.

    Raises StoreBrokenError if the source is missing, cannot be read, or has a damaged row; OSError
    if the target cannot be written.
    """
    if not source.exists():
        raise StoreBrokenError(f"{source}: no such database")
    try:
        with closing(database.connect_to_read(source)) as connection:
            connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        if database.is_disk_full(error):
            raise OSError(f"{target} cannot be written: {error}") from error
        raise StoreBrokenError(f"{source} cannot be copied: {error}") from error
    check_copy(target)
    with closing(database.connect_to_read(target)) as connection:
        return Recorded(*database.extent(connection))


def check_copy(path: Path) -> None:
    """Raise StoreBrokenError if a copy of a database has damage, naming it."""
    inspection = inspect(path)
    damaged = [f"{damage.key} at revision {damage.revision}" for damage in inspection.damage]
    if complaints := [*damaged, *inspection.complaints]:
        raise StoreBrokenError(
            f"the database has {len(complaints)} damaged places, the first: {complaints[0]}; "
            "`moor doctor --deep` lists them, and an administrator can remove what is damaged"
        )


def accept_copy(mark: Path, copy: Recorded) -> None:
    """Prepare the first start of a restored copy beside `mark`, the store's mark. Blocks.

    Revisions then go on far above the copy's and above those in the mark of the store that it
    replaces: no client is shown an old revision with another content. Raises StoreBrokenError for a
    damaged mark, OSError.
    """
    replaced = read_mark(mark)
    revision = max(copy.revision, replaced.revision if replaced else 0) + _RESTORED_GAP
    write_durably(accepted_path(mark), mark_content(Recorded(copy.identity, revision)))
    mark.unlink(missing_ok=True)
