# ruff: noqa: ASYNC240 - the files are small
"""What is damaged on disk is named and can be removed; the rest is served."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage import (
    Damage,
    RevisionConflictError,
    SqliteStore,
    StoreBrokenError,
    WatchCache,
    database,
    inspect,
)
from moorage.apiserver.storage.database import FORMAT
from tests.apiserver.storage.test_cache import make_word


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def filled(path: Path, count: int = 5, value: bytes = b"some text") -> list[int]:
    """Make a store of `a/0` and so on; their revisions."""
    async with SqliteStore(path) as store:
        return [await store.put(f"a/{number}", value, 0) for number in range(count)]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "damage",
    [
        "value = x'736f6d6520746578ff'",
        "value = 'text'",
        "value = 7",
        "checksum = checksum + 1",
        "checksum = NULL",
        "previous = 77",
        "deleted = 1",
        "deleted = 'x'",
    ],
)
async def test_a_damaged_row_is_named_and_the_rest_is_served(path: Path, damage: str) -> None:
    revisions = await filled(path)
    change(path, f"UPDATE log SET {damage} WHERE revision = {revisions[2]}")
    result = Damage("a/2", revisions[2])
    assert inspect(path).damage == [result]
    async with SqliteStore(path) as store:
        assert list(store.damage) == [result]
        assert [e.key for e in (await store.range("")).entries] == ["a/0", "a/1", "a/3", "a/4"]
        cache = WatchCache(store, make_word)
        await cache.load()
        assert [word.key for word in cache.scan("a/")] == ["a/0", "a/1", "a/3", "a/4"]
        assert list(cache.damage_under("a/")) == [result]
        assert cache.damage("a/1") is None
        assert cache.damage("a/2") == result
        assert cache.damage("b/2") is None
        # A new object must not take its place unseen.
        with pytest.raises(RevisionConflictError):
            await store.put("a/2", b"new", 0)
        await store.put("a/4", b"changed", revisions[4])
        await store.delete("a/2", b"gone", result.revision)
        assert cache.damage("a/2") is None
        assert cache.count("a/") == 4
        await store.put("a/2", b"new", 0)
        await store.compact(store.revision)
    assert inspect(path).damage == []
    async with SqliteStore(path) as store:
        assert store.damage == ()
        assert len((await store.range("a/")).entries) == 5


async def test_a_damaged_key_is_named_by_the_index(path: Path) -> None:
    revisions = await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        content = path.read_bytes()
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name='log'").fetchone()
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    start = (root[0] - 1) * size
    place = content.index(b"a/3", start)
    path.write_bytes(content[:place] + b"x/3" + content[place + 3 :])
    damage = Damage("a/3", revisions[3])
    checked = inspect(path)
    assert checked.damage == [damage]
    assert checked.complaints
    async with SqliteStore(path) as store:
        assert list(store.damage) == [damage]
        cache = WatchCache(store, make_word)
        await cache.load()
        assert [word.key for word in cache.scan("a/")] == ["a/0", "a/1", "a/2", "a/4"]


async def test_unreadable_page_loses_only_its_rows(path: Path) -> None:
    revisions = await filled(path, 60, b"x" * 1000)
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(path.read_bytes())
    place = content.index(b"a/30" + b"\0" * 0) if b"a/30" in content else -1
    # The table's leaf that holds the row, not the index's.
    while content[place : place + 1004].count(b"x") < 900:
        place = content.index(b"a/30", place + 1)
    page = place // size
    content[page * size : page * size + 8] = b"\xff" * 8
    path.write_bytes(bytes(content))
    checked = inspect(path)
    assert Damage("a/30", revisions[30]) in checked.damage
    assert checked.complaints
    async with SqliteStore(path) as store:
        assert 1 <= len(store.damage) <= 4
        cache = WatchCache(store, make_word)
        await cache.load()
        assert cache.count("a/") == 60 - len(store.damage)
        assert {d.key for d in cache.damage_under("a/")} == {d.key for d in store.damage}
        # In pages too, nothing twice and nothing left out.
        names: list[str] = []
        after, has_more = "", True
        while has_more:
            page_ = await store.range("a/", after=after, limit=7)
            names += [e.key for e in page_.entries] + [d.key for d in page_.damage]
            after, has_more = page_.last, page_.has_more
        assert sorted(names) == sorted(f"a/{i}" for i in range(60))


async def test_damage_in_the_past_shortens_the_window_only(path: Path) -> None:
    async with SqliteStore(path) as store:
        first = await store.put("a/1", b"1", 0)
        second = await store.put("a/1", b"2", first)
        third = await store.put("a/1", b"3", second)
        await store.put("a/2", b"x", 0)
    change(path, f"UPDATE log SET value = x'00' WHERE revision = {second}")
    async with SqliteStore(path) as store:
        assert store.damage == ()
        cache = WatchCache(store, make_word)
        await cache.load()
        assert [word.text for word in cache.scan("a/")] == ["3", "x"]
        watcher = cache.watch("a/", second, lambda event: event.revision)
        assert (await watcher.next_batch())[0] == third
        assert (await store.range("a/", revision=second)).damage == [Damage("a/1", second)]
        with pytest.raises(StoreBrokenError, match=f"a/1 at revision {second} is damaged"):
            await store.history("a/", first)


async def test_a_store_that_is_served_can_be_inspected(path: Path) -> None:
    async with SqliteStore(path) as store:
        for number in range(10):
            await store.put(f"a/{number}", b"x", 0)
        report = inspect(path)
        assert (report.rows, report.damage, report.complaints) == (10, [], [])
        await store.put("a/10", b"x", 0)


def test_missing_or_invalid_database_is_reported(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        inspect(path)
    path.write_bytes(b"no database" * 1000)
    assert inspect(path).complaints


async def test_unreadable_rows_are_reported(path: Path) -> None:
    await filled(path)
    change(path, "ALTER TABLE log RENAME COLUMN revision TO other")
    report = inspect(path)
    assert (report.rows, report.damage) == (0, [])
    assert report.complaints == ["no such column: revision"]


_FIRST_FORMAT = """
CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, previous INTEGER NOT NULL,
                  deleted INTEGER NOT NULL, value BLOB NOT NULL);
CREATE INDEX log_by_key ON log (key, revision);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO facts VALUES ('format', 1), ('compacted', 2);
"""


def make_first_format(path: Path, count: int) -> None:
    """A database as the version before checksums wrote it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(f"PRAGMA journal_mode = WAL; {_FIRST_FORMAT}")
        connection.executemany(
            "INSERT INTO log VALUES (?, ?, 0, 0, ?)",
            [(number, f"a/{number:05d}", b"old") for number in range(1, count + 1)],
        )


async def test_an_older_store_is_upgraded_with_all_that_is_in_it(path: Path) -> None:
    make_first_format(path, 2500)
    for _ in range(2):
        async with SqliteStore(path) as store:
            assert store.damage == ()
            assert (store.revision, store.compacted) == (2500, 2)
            assert len((await store.range("a/")).entries) == 2500
    change(path, "UPDATE log SET value = x'6f6c65' WHERE revision = 7")
    async with SqliteStore(path) as store:
        assert list(store.damage) == [Damage("a/00007", 7)]


@pytest.mark.parametrize("done", [0, 1, 1000, 2500])
async def test_interrupted_upgrade_is_resumed(path: Path, done: int) -> None:
    make_first_format(path, 2500)
    async with SqliteStore(path) as store:
        identity = store.identity
    # As a kill after some steps leaves it.
    change(path, "DELETE FROM facts WHERE name = 'checksums'")
    change(path, f"UPDATE log SET checksum = NULL WHERE revision > {done}")
    async with SqliteStore(path) as store:
        assert store.identity == identity
        assert store.damage == ()
        assert len((await store.range("a/")).entries) == 2500
    report = inspect(path)
    assert (report.rows, report.damage) == (2500, [])


async def test_a_failed_compaction_is_raised_and_made_good_by_a_later_one(path: Path) -> None:
    async with SqliteStore(path) as store:
        first = await store.put("a/1", b"1", 0)
        second = await store.put("a/1", b"2", first)
        change(
            path,
            "CREATE TRIGGER no BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'not now'); END",
        )
        with pytest.raises(StoreBrokenError, match="not now"):
            await store.compact(second)
        assert inspect(path).rows == 2
        change(path, "DROP TRIGGER no")
        third = await store.put("a/1", b"3", second)
        await store.compact(third)
        assert inspect(path).rows == 1
        assert [e.value for e in (await store.range("a/")).entries] == [b"3"]


async def test_an_upgrade_keeps_the_identity_that_there_is(path: Path) -> None:
    async with SqliteStore(path) as store:
        identity = store.identity
    change(path, f"UPDATE facts SET value = {FORMAT - 1} WHERE name = 'format'")
    async with SqliteStore(path) as store:
        assert store.identity == identity
    with closing(sqlite3.connect(path)) as connection:
        facts = dict(connection.execute("SELECT name, value FROM facts"))
    assert facts["format"] == FORMAT


async def test_what_has_no_checksums_yet_is_inspected_without_them(path: Path) -> None:
    await filled(path)
    change(path, "DELETE FROM facts WHERE name = 'checksums'")
    change(path, "UPDATE log SET checksum = NULL")
    assert not inspect(path).damage
    # Once it is served, each row has one again.
    async with SqliteStore(path) as store:
        assert not store.damage
    change(path, "UPDATE log SET value = 'other'")
    assert len(inspect(path).damage) == 5


def test_uninspectable_file_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        inspect(path)
    path.touch()
    with pytest.raises(PermissionError, match="cannot be read"):
        inspect(path)


async def test_opening_is_tried_again_on_a_full_disk_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, failures = database.load, [sqlite3.OperationalError("disk I/O error")]

    def fail_once(*arguments: Any) -> database.Loaded:
        if failures:
            raise failures.pop()
        return load(*arguments)

    monkeypatch.setattr(database, "load", fail_once)
    with pytest.raises((StoreBrokenError, sqlite3.Error), match="disk I/O error"):
        async with SqliteStore(tmp_path / "s.db"):
            pass
    assert not failures
    async with SqliteStore(tmp_path / "s.db") as store:
        assert await store.put("a/1", b"", 0)
