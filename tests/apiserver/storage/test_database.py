"""The functions on the SQLite file, one at a time: tables, rows, damage, upgrades, room."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage import database
from moorage.apiserver.storage.database import ReplayLimits, connect, connect_to_read, load
from moorage.apiserver.storage.store import Change, Damage, Entry, Page, StoreBrokenError

CHANGES = [
    Change("a", 1, b"1", 0, False),
    Change("b", 2, b"2", 0, False),
    Change("a", 3, b"3", 1, False),
    Change("b", 4, b"2", 2, True),
    Change("c", 5, b"5", 0, False),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(path)
    load(connection, path, 0)
    yield connection
    connection.close()


@pytest.fixture
def filled(connection: sqlite3.Connection) -> sqlite3.Connection:
    database.append(connection, CHANGES)
    return connection


class Unreadable:
    """A connection to a file that is damaged where statements with one of these parts read."""

    def __init__(self, connection: sqlite3.Connection, *parts: str) -> None:
        self._connection = connection
        self._parts = parts

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if any(part in statement for part in self._parts):
            raise sqlite3.DatabaseError("database disk image is malformed")
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


THE_TABLE = "FROM log ORDER BY revision"
THE_INDEX = "INDEXED BY log_by_key"
STATES = "deleted = 0"


def facts(connection: sqlite3.Connection) -> dict[str, object]:
    return dict(connection.execute("SELECT name, value FROM facts").fetchall())


def keys(entries: list[Entry]) -> list[tuple[str, int, bytes]]:
    return [(entry.key, entry.revision, entry.value) for entry in entries]


def spoil(connection: sqlite3.Connection, revision: int) -> None:
    connection.execute("UPDATE log SET value = x'00' WHERE revision = ?", (revision,))


def test_a_connection_writes_ahead_and_waits_for_the_disk(path: Path) -> None:
    connection = connect(path)
    result = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "busy_timeout", "cache_size")
    ]
    assert result == ["wal", 2, 5000, -4096]
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone()[0] == 0
    assert connection.isolation_level is None
    connection.close()


def test_invalid_database_file_is_closed_again(path: Path) -> None:
    path.write_bytes(b"x" * 4096)
    with pytest.raises(sqlite3.DatabaseError):
        connect(path)


def test_a_reader_writes_nothing_and_makes_nothing(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        connect_to_read(path).execute("SELECT 1 FROM log")
    assert not path.exists()
    connect(path).close()
    reader = connect_to_read(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("CREATE TABLE x (y)")
    reader.close()


@pytest.mark.parametrize("missing", ["TABLE log", "INDEX log_by_key", "TABLE reserve"])
def test_a_table_that_is_missing_is_made(
    connection: sqlite3.Connection, path: Path, missing: str
) -> None:
    before = facts(connection)["identity"]
    connection.execute(f"DROP {missing}")
    loaded = load(connection, path, 0)
    assert loaded.identity == before
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert names >= {"log", "log_by_key", "facts", "reserve"}


def test_facts_that_are_missing_are_another_store(
    connection: sqlite3.Connection, path: Path
) -> None:
    before = facts(connection)["identity"]
    connection.execute("DROP TABLE facts")
    assert database.extent(connection) == ("", 0)
    assert not database.has_checksums(connection)
    load(connection, path, 0)
    recorded_facts = facts(connection)
    assert recorded_facts.pop("identity") != before
    assert recorded_facts == {"format": 2, "checksums": 1}


@pytest.mark.parametrize("missing", ["TABLE log", "INDEX log_by_key", "TABLE facts"])
def test_what_lacks_a_table_has_no_extent(filled: sqlite3.Connection, missing: str) -> None:
    identity = str(facts(filled)["identity"])
    assert identity.startswith("store-")
    assert database.extent(filled) == (identity, 5)
    assert database.has_checksums(filled)
    filled.execute(f"DROP {missing}")
    assert database.extent(filled) == ("", 0)
    assert not database.has_checksums(filled)


def test_the_extent_is_the_last_revision_or_the_floor(filled: sqlite3.Connection) -> None:
    filled.execute("DELETE FROM facts WHERE name = 'identity'")
    filled.execute("INSERT INTO facts VALUES ('compacted', 3)")
    assert database.extent(filled) == ("", 5)
    filled.execute("UPDATE facts SET value = 9 WHERE name = 'compacted'")
    assert database.extent(filled) == ("", 9)


def test_a_floor_is_recorded_where_it_is_above(filled: sqlite3.Connection, path: Path) -> None:
    loaded = load(filled, path, 0)
    assert (loaded.last, loaded.compacted, loaded.forgotten) == (5, 0, 0)
    loaded = load(filled, path, 7)
    assert (loaded.last, loaded.compacted, loaded.forgotten) == (7, 7, 0)
    assert (facts(filled)["compacted"], facts(filled)["forgotten"]) == (7, 0)
    loaded = load(filled, path, 6)
    assert (loaded.compacted, loaded.forgotten) == (7, 0)
    assert load(filled, path, 7).compacted == 7


def test_what_was_compacted_before_forgetting_was_recorded_is_forgotten(
    filled: sqlite3.Connection, path: Path
) -> None:
    filled.execute("INSERT INTO facts VALUES ('compacted', 3)")
    assert load(filled, path, 2).forgotten == 3


def test_what_is_loaded(filled: sqlite3.Connection, path: Path) -> None:
    loaded = load(filled, path, 0)
    assert loaded.heads == {"a": 3, "c": 5}
    assert (loaded.damage, loaded.replay_floor) == ([], 0)
    spoil(filled, 3)
    loaded = load(filled, path, 0)
    assert loaded.heads == {"a": 3, "c": 5}
    assert loaded.damage == [Damage("a", 3)]
    # What follows a damaged row alone can be replayed.
    assert loaded.replay_floor == 3


@pytest.mark.parametrize(
    ("limits", "floor"),
    [
        (ReplayLimits(changes=2), 3),
        (ReplayLimits(changes=5), 0),
        (ReplayLimits(changes=5, bytes=5), 0),
        (ReplayLimits(changes=5, bytes=3), 2),
    ],
)
def test_how_much_is_replayed(
    filled: sqlite3.Connection, path: Path, limits: ReplayLimits, floor: int
) -> None:
    assert load(filled, path, 0, limits).replay_floor == floor


def test_a_transaction_is_whole_or_nothing(filled: sqlite3.Connection) -> None:
    def fail() -> None:
        with database.transaction(filled):
            filled.execute("DELETE FROM log")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not filled.in_transaction
    with pytest.raises(sqlite3.IntegrityError):
        database.append(filled, [Change("d", 6, b"", 0, False), CHANGES[0]])
    assert filled.execute("SELECT count(*) FROM log").fetchone()[0] == 5
    with database.transaction(filled):
        filled.execute("DELETE FROM log WHERE revision = 1")
    assert filled.execute("SELECT count(*) FROM log").fetchone()[0] == 4


@pytest.mark.parametrize(
    ("after", "upto", "left"),
    [
        (0, 0, [1, 2, 3, 4, 5]),
        # A state goes once what replaced it is in the range, a deletion's mark with its range.
        (0, 2, [1, 2, 3, 4, 5]),
        (0, 3, [2, 3, 4, 5]),
        (0, 4, [3, 5]),
        (3, 4, [1, 3, 5]),
        (4, 5, [1, 2, 3, 4, 5]),
    ],
)
def test_what_is_forgotten(
    filled: sqlite3.Connection, after: int, upto: int, left: list[int]
) -> None:
    database.forget(filled, after, upto, 5)
    result = [row[0] for row in filled.execute("SELECT revision FROM log ORDER BY revision")]
    assert result == left
    assert (facts(filled)["forgotten"], facts(filled)["compacted"]) == (upto, 5)


@pytest.mark.parametrize("damaged", [None, "row", "file"])
@pytest.mark.parametrize(
    ("prefix", "revision", "after", "limit", "expected", "has_more", "last"),
    [
        ("", 5, "", None, [("a", 3, b"3"), ("c", 5, b"5")], False, "c"),
        ("", 2, "", None, [("a", 1, b"1"), ("b", 2, b"2")], False, "b"),
        ("", 2, "", 1, [("a", 1, b"1")], True, "a"),
        ("", 2, "", 2, [("a", 1, b"1"), ("b", 2, b"2")], False, "b"),
        ("", 2, "a", None, [("b", 2, b"2")], False, "b"),
        ("b", 2, "", None, [("b", 2, b"2")], False, "b"),
        ("x", 5, "", None, [], False, ""),
        ("", 5, "d", 1, [], False, "d"),
    ],
)
def test_the_state_at_a_revision(
    filled: sqlite3.Connection,
    damaged: str | None,
    prefix: str,
    revision: int,
    after: str,
    limit: int | None,
    expected: list[tuple[str, int, bytes]],
    has_more: bool,
    last: str,
) -> None:
    damage: list[Damage] = []
    if damaged is not None:
        # All in one statement cannot be read; row by row it can, but for a damaged one.
        spoil(filled, 2)
        damage = [Damage("b", 2) for row in expected if row[0] == "b"]
        expected = [row for row in expected if row[0] != "b"]
    file: Any = Unreadable(filled, STATES) if damaged == "file" else filled
    page = database.state_at(file, prefix, revision, after, limit)
    assert (page.revision, keys(list(page.entries))) == (revision, expected)
    assert (list(page.damage), page.has_more) == (damage, has_more)
    if expected or damage or damaged != "file":
        assert page.last == last


def test_row_by_row_a_page_ends_before_a_key_that_is_deleted(filled: sqlite3.Connection) -> None:
    file: Any = Unreadable(filled, STATES)
    page = database.state_at(file, "", 5, "", 2)
    assert (keys(list(page.entries)), page.has_more) == ([("a", 3, b"3"), ("c", 5, b"5")], False)
    page = database.state_at(file, "", 5, "", 1)
    assert (keys(list(page.entries)), page.has_more, page.last) == ([("a", 3, b"3")], True, "a")


@pytest.mark.parametrize(("limit", "rows"), [(None, -1), (2, 3)])
def test_page_reads_one_row_beyond_its_limit(
    filled: sqlite3.Connection, limit: int | None, rows: int
) -> None:
    statements: list[str] = []
    filled.set_trace_callback(statements.append)
    database.state_at(filled, "", 5, "", limit)
    assert [statement.split()[-2:] for statement in statements] == [["LIMIT", str(rows)]]


def test_history_is_each_change_as_it_was_made(filled: sqlite3.Connection) -> None:
    assert database.history(filled, "", 0) == CHANGES
    assert database.history(filled, "", 3) == CHANGES[3:]
    assert database.history(filled, "a", 0) == [CHANGES[0], CHANGES[2]]
    spoil(filled, 3)
    assert database.history(filled, "", 3) == CHANGES[3:]
    with pytest.raises(StoreBrokenError, match="a"):
        database.history(filled, "", 2)


def test_a_checksum_is_of_every_field() -> None:
    row = (1, "a", 2, 1, b"v")
    others = [(2, "a", 2, 1, b"v"), (1, "b", 2, 1, b"v"), (1, "a", 3, 1, b"v"),
              (1, "a", 2, 0, b"v"), (1, "a", 2, 1, b"w")]  # fmt: skip
    sums = {database.checksum(*other) for other in (row, *others)}
    assert len(sums) == 6
    # What stores of earlier versions have written.
    assert database.checksum(1, "a", 2, 1, b"v") == 3738266495
    assert database.checksum(1, "a", 2, True, b"v") == database.checksum(1, "a", 2, 1, b"v")


@pytest.mark.parametrize(
    "row", [(1, "a", 0, 0, "text", 5), (1, "a", 0, "x", b"", 5), (1, "a", 0, 0, b"1", None)]
)
def test_a_row_whose_columns_changed_is_not_intact(row: database.Row) -> None:
    assert not database.is_intact(row)


def test_rows_are_verified_one_by_one_where_the_table_cannot_be_read(
    filled: sqlite3.Connection,
) -> None:
    spoil(filled, 4)
    whole = [(revision, row is not None) for revision, row in database.verify(filled)]
    assert whole == [(1, True), (2, True), (3, True), (4, False), (5, True)]
    file: Any = Unreadable(filled, THE_TABLE)
    assert [(revision, row is not None) for revision, row in database.verify(file)] == whole
    filled.execute("INSERT INTO log VALUES (0, 'z', 0, 0, x'', 0)")
    revisions = [revision for revision, _ in database.verify(file)]
    assert revisions == [1, 2, 3, 4, 5]


def test_the_key_of_a_damaged_row(filled: sqlite3.Connection) -> None:
    assert database.key_of(filled, 4) == "b"
    assert database.key_of(filled, 9) == ""
    without_index: Any = Unreadable(filled, THE_INDEX)
    assert database.key_of(without_index, 5) == "c"


def test_a_checkpoint_says_whether_all_was_moved(filled: sqlite3.Connection, path: Path) -> None:
    assert database.checkpoint(filled)
    reader = connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM log").fetchone()
    database.append(filled, [Change("d", 6, b"6", 0, False)])
    assert not database.checkpoint(filled)
    reader.execute("ROLLBACK")
    reader.close()
    assert database.checkpoint(filled)


def test_pages_are_kept_back_once_and_given_to_rows(connection: sqlite3.Connection) -> None:
    database.add_filler(connection, 100_000)
    database.add_filler(connection, 900_000)
    size = connection.execute("SELECT sum(length(filler)) FROM reserve").fetchone()[0]
    assert size == 100_000
    before = database.free_bytes(connection)
    assert database.drop_filler(connection)
    assert not database.drop_filler(connection)
    freed = database.free_bytes(connection) - before
    assert 100_000 - 2 * 4096 <= freed <= 100_000 + 4 * 4096


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_an_older_format_is_upgraded_in_steps(path: Path, step: int) -> None:
    old = connect(path)
    old.executescript(
        "CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT NOT NULL,"
        " previous INTEGER NOT NULL, deleted INTEGER NOT NULL, value BLOB NOT NULL);"
        "CREATE INDEX log_by_key ON log (key, revision);"
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);"
        "INSERT INTO facts VALUES ('compacted', 0);"
    )
    old.executemany(
        "INSERT INTO log VALUES (?, ?, ?, ?, ?)",
        [(c.revision, c.key, c.previous, c.is_deletion, c.value) for c in CHANGES],
    )
    statements: list[str] = []
    old.set_trace_callback(statements.append)
    loaded = load(old, path, 0, upgrade_step=step)
    old.set_trace_callback(None)
    assert (loaded.damage, loaded.heads) == ([], {"a": 3, "c": 5})
    checkpoints = [statement for statement in statements if "wal_checkpoint" in statement]
    assert len(checkpoints) == -(-len(CHANGES) // step)
    recorded_facts = facts(old)
    assert str(recorded_facts.pop("identity")).startswith("store-")
    assert recorded_facts == {"compacted": 0, "format": 2, "checksums": 1}
    # From here on a row without checksum is damaged.
    old.execute("UPDATE log SET checksum = NULL WHERE revision = 5")
    assert load(old, path, 0).damage == [Damage("c", 5)]
    old.close()


@pytest.mark.parametrize("version", [0, 3])
def test_another_format_is_refused(
    connection: sqlite3.Connection, path: Path, version: int
) -> None:
    connection.execute("UPDATE facts SET value = ? WHERE name = 'format'", (version,))
    with pytest.raises(
        StoreBrokenError, match=f"has format {version}; this version reads format 2"
    ):
        load(connection, path, 0)


def test_damage_beyond_rows_is_one_error(filled: sqlite3.Connection, path: Path) -> None:
    file: Any = Unreadable(filled, THE_TABLE, THE_INDEX)
    with pytest.raises(StoreBrokenError, match="restore it from a backup"):
        load(file, path, 0)


def test_what_is_there_is_not_made_again(connection: sqlite3.Connection, path: Path) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    load(connection, path, 0)
    assert statements
    assert not [
        statement for statement in statements if not statement.startswith(("SELECT", "PRAGMA"))
    ]


def test_a_page_is_whole_unless_it_says_otherwise() -> None:
    page = Page(3, [])
    assert (page.has_more, page.last, list(page.damage)) == (False, "", [])


def test_what_was_forgotten_is_moved_out_of_the_log(
    filled: sqlite3.Connection, path: Path, tmp_path: Path
) -> None:
    database.forget(filled, 0, 3, 3)
    # The file alone, without its log.
    other = tmp_path / "copy.db"
    other.write_bytes(path.read_bytes())
    copy = sqlite3.connect(other)
    assert facts(copy)["forgotten"] == 3
    copy.close()
