"""Database inspection for `moor doctor --deep`; works on a database being served too."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from moorage.apiserver.storage import database
from moorage.apiserver.storage.store import Damage

_COMPLAINTS = 20


class Inspection(msgspec.Struct, frozen=True):
    """Result of an inspection: number of rows read, damaged rows, SQLite's errors."""

    rows: int
    damage: Sequence[Damage]
    complaints: Sequence[str]


def inspect(path: Path) -> Inspection:
    """Check the file's structure and every row's checksum. Blocks while it reads the file.

    Raises FileNotFoundError, PermissionError.
    """
    # SQLite does not report why it cannot open a file. Checked without opening it: close would
    # release the locks of a store in this process.
    if not path.stat().st_size or not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, "cannot be read", str(path))
    damage: list[Damage] = []
    complaints: list[str] = []
    rows = 0
    with closing(database.connect_to_read(path)) as connection:
        try:
            checks = connection.execute(f"PRAGMA integrity_check({_COMPLAINTS})").fetchall()
            complaints += [str(text) for (text,) in checks if text != "ok"]
        except sqlite3.Error as error:
            complaints.append(str(error))
        try:
            if database.has_checksums(connection):
                for revision, row in database.verify(connection):
                    rows += 1
                    if row is None:
                        damage.append(Damage(database.key_of(connection, revision), revision))
        except sqlite3.Error as error:
            complaints.append(str(error))
    return Inspection(rows, damage, complaints)
