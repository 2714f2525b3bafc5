from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from moorage.apiserver.storage import SqliteStore, Store, StoreBrokenError
from moorage.apiserver.storage.mark import Recorded, read_mark
from tests.apiserver.storage.suite import StoreSuite
from tests.descriptors import open_descriptors


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


def _threads() -> list[tuple[str, bool]]:
    running = (thread for thread in threading.enumerate() if thread.name.startswith("store-"))
    return sorted((thread.name, thread.daemon) for thread in running)


async def test_an_open_store_has_a_writer_and_a_reader(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db"):
        assert _threads() == [("store-reader", True), ("store-writer", True)]
    assert _threads() == []


async def test_store_without_room_for_its_mark_is_not_opened(tmp_path: Path) -> None:
    path, mark = tmp_path / "store.db", tmp_path / "absent" / "store.mark"
    before = open_descriptors()
    with pytest.raises(StoreBrokenError) as refused:
        async with SqliteStore(path, mark=mark):
            pass
    assert str(refused.value) == (
        f"{mark}, which records that the store was made, cannot be written: "
        "No such file or directory"
    )
    assert (open_descriptors(), _threads()) == (before, [])
    # It left neither a lock nor a mark: the next start makes the store.
    mark.parent.mkdir()
    async with SqliteStore(path, mark=mark) as store:
        assert store.revision == 0


async def test_files_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "db" / "store.db"
    async with SqliteStore(path, reserve_bytes=4096) as store:
        await store.put("a/1", b"", 0)
        files = {file.name for file in path.parent.iterdir()}
        assert files == {
            "store.db", "store.db-wal", "store.db-shm", "store.db.lock", "store.db.mark",
            "store.db.reserve",
        }  # fmt: skip
        assert path.with_name("store.db.reserve").stat().st_size == 4096
    assert read_mark(path.with_name("store.db.mark")) == Recorded(store.identity, 1)
    with closing(sqlite3.connect(path)) as connection:
        reserved = connection.execute("SELECT length(filler) FROM reserve").fetchall()
    assert reserved == [(4096,)]


@pytest.mark.parametrize("version", [0, 99])
async def test_format_that_cannot_be_read_is_named(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE facts SET value = ? WHERE name = 'format'", (version,))
    with pytest.raises(StoreBrokenError) as refused:
        async with SqliteStore(path):
            pass
    assert str(refused.value) == f"{path} has format {version}; this version reads format 2"
