from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.storage import SqliteStore, Store, StoreBrokenError
from tests.storage.suite import StoreSuite


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with SqliteStore(tmp_path / "store.db") as store:
            yield store


async def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        kept = await store.put("a/1", b"1", 0)
        gone = await store.put("a/2", b"2", 0)
        last = await store.delete("a/2", b"2", gone)
    async with SqliteStore(path) as store:
        assert store.revision == last
        assert [(e.key, e.revision) for e in (await store.range("")).entries] == [("a/1", kept)]
        assert await store.put("a/2", b"", 0) > last


async def test_revisions_never_run_backwards_when_all_was_compacted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        last = await store.delete("a/1", b"", await store.put("a/1", b"", 0))
        await store.compact(last)
    async with SqliteStore(path) as store:
        assert await store.put("a/1", b"", 0) > last


async def test_a_write_that_does_not_fit_on_disk_is_refused_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        revision = await store.put("a/1", b"small", 0)
        received: list[object] = []
        store.listen(received.extend)
        old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, old_limit[1]))
        try:
            with pytest.raises(StoreBrokenError, match=r"store\.db"):
                await store.put("a/1", b"x" * 1024 * 1024, revision)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
            signal.signal(signal.SIGXFSZ, old_handler)
        assert received == []
        assert (await store.range("a/")).entries[0].value == b"small"
        assert await store.put("a/1", b"after", revision) > revision


async def test_writes_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        batches: list[int] = []
        store.listen(lambda changes: batches.append(len(changes)))
        await asyncio.gather(*(store.put(f"a/{i}", b"v", 0) for i in range(300)))
        assert sum(batches) == 300
        assert len(batches) < 150


async def test_invalid_store_file_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, certainly not one of ours" * 100)
    with pytest.raises(StoreBrokenError, match=r"store\.db cannot be opened"):
        async with SqliteStore(path):
            pass


async def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE facts SET value = 99 WHERE name = 'format'")
    with pytest.raises(StoreBrokenError, match="format 99"):
        async with SqliteStore(path):
            pass
