"""SQLite file of a store: its schema, its statements, and a checksum on every row.

Blocking functions for the store's threads; none uses the event loop. A row whose checksum does not
match, or that SQLite cannot read, is reported as damage and all else is returned.
Formats: 1 had no checksums; a store of it is upgraded at open, in steps that may be interrupted.
"""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from moorage.apiserver.storage.store import (
    Change,
    Damage,
    Entry,
    Page,
    StoreBrokenError,
    prefix_end,
)

FORMAT = 2
_TABLES = """
CREATE TABLE IF NOT EXISTS log (
    revision INTEGER PRIMARY KEY,
    key      TEXT    NOT NULL,
    previous INTEGER NOT NULL,
    deleted  INTEGER NOT NULL,
    value    BLOB    NOT NULL,
    checksum INTEGER
);
CREATE INDEX IF NOT EXISTS log_by_key ON log (key, revision);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS reserve (filler BLOB NOT NULL);
"""
_READ_TABLES = frozenset({"log", "log_by_key", "facts"})
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA cache_size = -4096",
    # A checkpoint that fails within COMMIT would report a durable change as failed: the writer
    # checkpoints after it has acknowledged.
    "PRAGMA wal_autocheckpoint = 0",
)
_COLUMNS = "revision, key, previous, deleted, value, checksum"
_INSERT = f"INSERT INTO log ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_ALL = f"SELECT {_COLUMNS} FROM log ORDER BY revision"
_ONE = f"SELECT {_COLUMNS} FROM log WHERE revision = ?"
# Reads the index only, which survives damage to the table.
_INDEXED = "SELECT revision, key FROM log INDEXED BY log_by_key"
_KEY_OF = (f"{_INDEXED} WHERE revision = ?", "SELECT revision, key FROM log WHERE revision = ?")
# A key's state at a revision is its last change up to there. An empty blob sorts after all text.
_STATE_AT = f"""
SELECT {_COLUMNS} FROM log AS change
WHERE key >= ? AND key < ? AND key > ? AND revision <= ? AND deleted = 0
  AND revision = (SELECT max(revision) FROM log WHERE key = change.key AND revision <= ?)
ORDER BY key LIMIT ?
"""
_LAST_AT = """
SELECT key, max(revision) FROM log INDEXED BY log_by_key
WHERE key >= ? AND key < ? AND key > ? AND revision <= ? GROUP BY key ORDER BY key
"""
_HISTORY = f"""
SELECT {_COLUMNS} FROM log WHERE revision > ? AND key >= ? AND key < ? ORDER BY revision
"""
# Within the compacted range: states that a later change replaced, then the deletions.
_FORGET = (
    "DELETE FROM log WHERE revision IN"
    " (SELECT previous FROM log WHERE revision > ? AND revision <= ? AND previous > 0)",
    "DELETE FROM log WHERE revision > ? AND revision <= ? AND deleted = 1",
)
_UNSUMMED = f"SELECT {_COLUMNS} FROM log WHERE revision > ? AND checksum IS NULL LIMIT ?"
_SET_FACT = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"
_UPGRADE_STEP = 1000
REPLAYED_CHANGES = 16384
REPLAYED_BYTES = 64 * 1024 * 1024
"""Bytes at the end of the log that readers replay at open."""
_FULL_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_PRIMARY_CODE = 0xFF

Row = tuple[int, str, int, int, bytes, int | None]
"""The columns of `log`, in `_COLUMNS`' order."""


class Loaded(msgspec.Struct):
    """Contents of a database at open. `heads` maps each present key to its revision."""

    identity: str
    last: int
    compacted: int
    forgotten: int
    replay_floor: int = 0
    heads: dict[str, int] = msgspec.field(default_factory=dict)
    damage: list[Damage] = msgspec.field(default_factory=list)


def connect(path: Path) -> sqlite3.Connection:
    """Open a database for writing. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a database that another process may be writing. Raises sqlite3.Error."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


class ReplayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the latest changes that a watch cache replays."""

    changes: int = REPLAYED_CHANGES
    bytes: int = REPLAYED_BYTES


def load(
    connection: sqlite3.Connection,
    path: Path,
    floor: int,
    replayed: ReplayLimits = ReplayLimits(),  # noqa: B008 - it does not change
    upgrade_step: int = _UPGRADE_STEP,
) -> Loaded:
    """Create or upgrade the tables, verify every row and return the contents.

    `floor`: revisions up to it count as used and compacted. A file of an earlier format is
    upgraded by `upgrade_step` rows at a time. Raises StoreBrokenError, sqlite3.Error.
    """
    if not _names(connection) >= {*_READ_TABLES, "reserve"}:
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    facts = _facts(connection)
    format_version = facts.get("format", 1 if facts else FORMAT)
    if format_version not in (1, FORMAT):
        raise StoreBrokenError(
            f"{path} has format {format_version}; this version reads format {FORMAT}"
        )
    _upgrade(connection, facts, upgrade_step)
    facts = _facts(connection)
    compacted = facts.get("compacted", 0)
    forgotten = facts.get("forgotten", compacted)
    if floor > compacted:
        with transaction(connection):
            connection.execute(_SET_FACT, ("forgotten", forgotten))
            connection.execute(_SET_FACT, ("compacted", floor))
        compacted = floor
    loaded = Loaded(facts["identity"], compacted, compacted, forgotten)
    _scan(connection, path, loaded, replayed)
    return loaded


class transaction:  # noqa: N801 - reads as a statement
    """Run the block of `with transaction(connection)` atomically. Raises sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        connection = self._connection
        try:
            if kind is None:
                connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def append(connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
    """Write changes durably, all or none. Raises sqlite3.Error."""
    rows = [
        (c.revision, c.key, c.previous, c.is_deletion, c.value,
         checksum(c.revision, c.key, c.previous, c.is_deletion, c.value))
        for c in changes
    ]  # fmt: skip
    with transaction(connection):
        connection.executemany(_INSERT, rows)


def forget(connection: sqlite3.Connection, after: int, upto: int, compacted: int) -> None:
    """Remove states superseded in (after, upto], durably. Raises sqlite3.Error."""
    with transaction(connection):
        for statement in _FORGET:
            connection.execute(statement, (after, upto))
        connection.execute(_SET_FACT, ("forgotten", upto))
        connection.execute(_SET_FACT, ("compacted", compacted))
    checkpoint(connection)


def state_at(
    connection: sqlite3.Connection, prefix: str, revision: int, after: str, limit: int | None
) -> Page:
    """Read the entries under a prefix at a revision, following the key `after`."""
    end = prefix_end(prefix) or b""
    row_limit = -1 if limit is None else limit + 1
    try:
        rows: list[Row] = connection.execute(
            _STATE_AT, (prefix, end, after, revision, revision, row_limit)
        ).fetchall()
    except sqlite3.DatabaseError:
        return _state_by_rows(connection, (prefix, end, after, revision), revision, limit)
    has_more = limit is not None and len(rows) > limit
    entries, damage = [], []
    for row in rows[:limit]:
        if is_intact(row):
            entries.append(Entry(row[1], row[0], row[4]))
        else:
            damage.append(Damage(row[1], row[0]))
    return Page(revision, entries, has_more, rows[:limit][-1][1] if rows else after, damage)


def history(connection: sqlite3.Connection, prefix: str, after: int) -> list[Change]:
    """Read the changes under a prefix since a revision. Raises StoreBrokenError, sqlite3.Error."""
    rows: list[Row] = connection.execute(
        _HISTORY, (after, prefix, prefix_end(prefix) or b"")
    ).fetchall()
    for row in rows:
        if not is_intact(row):
            raise StoreBrokenError(str(Damage(row[1], row[0])))
    return [
        Change(key, revision, value, previous, bool(deleted))
        for revision, key, previous, deleted, value, _ in rows
    ]


def checksum(revision: int, key: str, previous: int, is_deletion: int, value: bytes) -> int:
    """Return the CRC-32 of a row: of all its fields, so that any change is detected."""
    head = f"{revision} {previous} {is_deletion:d} {key}".encode()
    return zlib.crc32(value, zlib.crc32(head))


def is_intact(row: Row) -> bool:
    """Return whether a row matches its checksum."""
    revision, key, previous, deleted, value, stored = row
    try:
        return checksum(revision, key, previous, deleted, value) == stored
    except (TypeError, ValueError):
        # A damaged header can change the type of a column.
        return False


def extent(connection: sqlite3.Connection) -> tuple[str, int]:
    """Return a database's identity, "" if it has none, and its last revision.

    Raises sqlite3.Error.
    """
    if not _has_tables(connection):
        return "", 0
    facts = _facts(connection)
    last = connection.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()[0]
    return str(facts.get("identity", "")), max(int(last), facts.get("compacted", 0))


def verify(connection: sqlite3.Connection) -> Iterator[tuple[int, Row | None]]:
    """Yield each revision of the log with its row, None where the row is damaged.

    Raises sqlite3.Error when not even the index can be read.
    """
    last = 0
    try:
        for row in connection.execute(_ALL):
            yield row[0], row if is_intact(row) else None
            last = row[0]
        return
    except sqlite3.DatabaseError:
        revisions = sorted(revision for revision, _ in connection.execute(_INDEXED))
    for revision in revisions:
        if revision > last:
            yield revision, _row(connection, revision)


def has_checksums(connection: sqlite3.Connection) -> bool:
    """Return whether rows have checksums: an older version's file has none until it is served."""
    return _has_tables(connection) and "checksums" in _facts(connection)


def key_of(connection: sqlite3.Connection, revision: int) -> str:
    """Return the key of a damaged row from the index, else from the row; "" if neither."""
    for statement in _KEY_OF:
        try:
            row = connection.execute(statement, (revision,)).fetchone()
        except sqlite3.DatabaseError:
            continue
        if row is not None:
            return str(row[1])
    return ""


def is_disk_full(error: sqlite3.Error) -> bool:
    """Return whether a full disk may be the cause: I/O errors on a log that cannot grow too."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return (code & _PRIMARY_CODE) in _FULL_CODES


def checkpoint(connection: sqlite3.Connection) -> bool:
    """Checkpoint the log and restart it. Returns whether all of it was moved.

    Raises sqlite3.Error.
    """
    is_busy, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return not is_busy and frames == moved


def add_filler(connection: sqlite3.Connection, size: int) -> None:
    """Reserve pages of the file, unless already reserved. Raises sqlite3.Error."""
    with transaction(connection):
        if connection.execute("SELECT 1 FROM reserve").fetchone() is None:
            connection.execute("INSERT INTO reserve VALUES (zeroblob(?))", (size,))
    checkpoint(connection)


def drop_filler(connection: sqlite3.Connection) -> bool:
    """Free the reserved pages. Returns False if there were none. Raises sqlite3.Error."""
    with transaction(connection):
        return connection.execute("DELETE FROM reserve").rowcount > 0


def free_bytes(connection: sqlite3.Connection) -> int:
    """Return the room within the database file that later writes can use."""
    pages = connection.execute("PRAGMA freelist_count").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    return int(pages) * int(size)


def _row(connection: sqlite3.Connection, revision: int) -> Row | None:
    """Return the row of a revision, None if it is damaged or gone."""
    try:
        row: Row | None = connection.execute(_ONE, (revision,)).fetchone()
    except sqlite3.DatabaseError:
        return None
    return row if row is not None and is_intact(row) else None


def _state_by_rows(
    connection: sqlite3.Connection, where: tuple[Any, ...], revision: int, limit: int | None
) -> Page:
    """Read as `state_at`, one row at a time; report unreadable rows and return the rest."""
    entries: list[Entry] = []
    damage: list[Damage] = []
    last_key = str(where[2])
    for key, changed in connection.execute(_LAST_AT, where).fetchall():
        if limit is not None and len(entries) + len(damage) == limit:
            return Page(revision, entries, True, last_key, damage)
        row = _row(connection, changed)
        if row is None:
            damage.append(Damage(key, changed))
        elif not row[3]:
            entries.append(Entry(key, changed, row[4]))
        last_key = key
    return Page(revision, entries, False, last_key, damage)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return _names(connection) >= _READ_TABLES


def _names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _facts(connection: sqlite3.Connection) -> dict[str, Any]:
    return dict(connection.execute("SELECT name, value FROM facts").fetchall())


def _upgrade(connection: sqlite3.Connection, facts: dict[str, Any], step: int) -> None:
    """Upgrade the tables to the present format; resumes after an interruption."""
    if facts.get("format") != FORMAT or "identity" not in facts:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(log)")}
        with transaction(connection):
            if "checksum" not in columns:
                connection.execute("ALTER TABLE log ADD COLUMN checksum INTEGER")
            if "identity" not in facts:
                # A letter first: the column affinity would convert digits to a number.
                connection.execute(_SET_FACT, ("identity", f"store-{secrets.token_hex(16)}"))
            connection.execute(_SET_FACT, ("format", FORMAT))
    if "checksums" in facts:
        return
    # From here on a row without checksum is damaged.
    last = 0
    while rows := connection.execute(_UNSUMMED, (last, step)).fetchall():
        with transaction(connection):
            connection.executemany(
                "UPDATE log SET checksum = ? WHERE revision = ?",
                [(checksum(*row[:5]), row[0]) for row in rows],
            )
        last = rows[-1][0]
        checkpoint(connection)
    with transaction(connection):
        connection.execute(_SET_FACT, ("checksums", 1))


def _scan(
    connection: sqlite3.Connection, path: Path, loaded: Loaded, replayed: ReplayLimits
) -> None:
    heads = loaded.heads
    recent: deque[tuple[int, int]] = deque()
    recent_bytes = 0
    try:
        for revision, row in verify(connection):
            loaded.last = max(loaded.last, revision)
            size = len(row[4]) if row is not None else replayed.bytes + 1
            recent.append((revision, size))
            recent_bytes += size
            while recent_bytes > replayed.bytes or len(recent) > replayed.changes:
                loaded.replay_floor, size = recent.popleft()
                recent_bytes -= size
            if row is None:
                key = key_of(connection, revision)
                loaded.damage.append(Damage(key, revision))
                if key:
                    heads[key] = revision
            elif row[3]:
                heads.pop(row[1], None)
            else:
                heads[row[1]] = revision
    except sqlite3.DatabaseError as error:
        raise StoreBrokenError(
            f"{path} is damaged beyond its rows ({error}); restore it from a backup, or save "
            f"what can be read with `sqlite3 {path} .recover`"
        ) from error
