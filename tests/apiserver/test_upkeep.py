from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from moorage.apiserver.upkeep import COMPACTION_INTERVAL_S, keep_compacting
from moorage.storage import SqliteStore
from tests.clocks import FakeClock, settle


def run(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def test_a_compaction_that_fails_is_reported_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    clock = FakeClock()
    async with SqliteStore(path) as store:
        revision = await store.put("a/1", b"1", 0)
        revision = await store.put("a/1", b"2", revision)
        run(path, "CREATE TRIGGER no BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'no'); END")
        keeping = asyncio.ensure_future(keep_compacting(store, clock))
        with caplog.at_level(logging.ERROR):
            await pass_interval(clock, store, "b/1")
        assert "compaction failed" in caplog.text
        assert not keeping.done()
        assert revisions_of(path, "a/1") == 2
        run(path, "DROP TRIGGER no")
        await pass_interval(clock, store, "b/2")
        assert revisions_of(path, "a/1") == 1
        keeping.cancel()


async def pass_interval(clock: FakeClock, store: SqliteStore, key: str) -> None:
    """Let a compaction become due and end: it comes before the second of two later commits."""
    await settle()
    clock.advance(COMPACTION_INTERVAL_S)
    await settle()
    revision = await store.put(key, b"", 0)
    await store.put(key, b"", revision)
    await settle()


def revisions_of(path: Path, key: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT count(*) FROM log WHERE key = ?", (key,)).fetchone()
        return int(found[0])
