"""Copies of a database that is served, and what a restored copy goes on from."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from moorage.apiserver.storage import (
    Recorded,
    SqliteStore,
    StoreBrokenError,
    accept_copy,
    check_copy,
    copy_database,
)


async def _values(store: SqliteStore) -> dict[str, bytes]:
    page = await store.range("")
    return {entry.key: entry.value for entry in page.entries}


async def test_a_copy_made_during_writes_has_all_that_was_acknowledged_before(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        for number in range(50):
            await store.put(f"a/{number}", b"x" * 100, 0)
        stopping = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stopping.is_set():
                await store.put(f"b/{number}", b"y", 0)
                number += 1

        writing = asyncio.create_task(write())
        recorded = await asyncio.to_thread(copy_database, path, copy)
        stopping.set()
        await writing
        assert recorded.identity == store.identity
    async with SqliteStore(copy) as copied:
        values = await _values(copied)
    assert {key for key in values if key.startswith("a/")} == {f"a/{n}" for n in range(50)}
    # No write is left out before one that is there.
    written = sum(key.startswith("b/") for key in values)
    assert {key for key in values if key.startswith("b/")} == {f"b/{n}" for n in range(written)}
    assert recorded.revision == 50 + written


async def test_damage_is_named_and_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with SqliteStore(path) as store:
        await store.put("a/1", b"value", 0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE log SET value = 'other'")
    with pytest.raises(StoreBrokenError, match="1 damaged places, the first: a/1 at revision 1"):
        copy_database(path, tmp_path / "copy.db")


def test_no_database_and_no_sqlite_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreBrokenError, match="no such database"):
        copy_database(tmp_path / "state.db", tmp_path / "copy.db")
    (tmp_path / "state.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreBrokenError, match="cannot be copied"):
        copy_database(tmp_path / "state.db", tmp_path / "copy.db")
    with pytest.raises(StoreBrokenError):
        check_copy(tmp_path / "state.db")


@pytest.mark.parametrize("replaced", [None, Recorded("other", 7_000)])
async def test_a_restored_copy_goes_on_above_every_revision_given_out(
    tmp_path: Path, replaced: Recorded | None
) -> None:
    path, copy, mark = tmp_path / "state.db", tmp_path / "copy" / "state.db", tmp_path / "mark"
    async with SqliteStore(path) as store:
        await store.put("a/1", b"value", 0)
    copy.parent.mkdir()
    recorded = copy_database(path, copy)
    if replaced is not None:
        mark.write_text(f"store {replaced.identity}\nrevision {replaced.revision:020}\n")
    accept_copy(mark, recorded)
    async with SqliteStore(copy, mark=mark) as restored:
        assert await _values(restored) == {"a/1": b"value"}
        revision = await restored.put("a/2", b"value", 0)
    assert revision > max(recorded.revision, replaced.revision if replaced else 0) + 1_000_000
