# ruff: noqa: ASYNC240 - the files are small
"""A database that is lost, replaced or older than what was acknowledged is not served as empty."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.apiserver.storage import (
    CompactedError,
    RevisionConflictError,
    SqliteStore,
    StoreBrokenError,
    accept_loss,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db" / "state.db"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "store.mark"


async def filled(path: Path, mark: Path, count: int = 3) -> tuple[str, int]:
    """Make a store, or write to it; its identity and last revision."""
    async with SqliteStore(path, mark=mark) as store:
        for number in range(count):
            present = {e.key: e.revision for e in (await store.range("a/")).entries}
            await store.put(f"a/{number}", b"x", present.get(f"a/{number}", 0))
        return store.identity, store.revision


async def refusal(path: Path, mark: Path) -> str:
    with pytest.raises(StoreBrokenError) as refused:
        async with SqliteStore(path, mark=mark):
            pass
    return str(refused.value)


async def test_a_store_keeps_its_identity(path: Path, mark: Path) -> None:
    first, last = await filled(path, mark)
    async with SqliteStore(path, mark=mark) as store:
        assert (store.identity, store.revision) == (first, last)


async def test_a_lost_database_is_refused(path: Path, mark: Path) -> None:
    _, last = await filled(path, mark)
    shutil.rmtree(path.parent)
    message = await refusal(path, mark)
    assert f"{path} is gone" in message
    assert f"revision {last}" in message
    assert "--accept-loss" in message
    assert not path.exists()
    # Still, at the next try.
    assert await refusal(path, mark) == message


@pytest.mark.parametrize("content", [b"", b"x" * 5000])
async def test_a_database_that_was_cut_or_overwritten_is_refused(
    path: Path, mark: Path, content: bytes
) -> None:
    await filled(path, mark)
    path.write_bytes(content)
    assert str(path) in await refusal(path, mark)


async def test_a_database_of_another_store_is_refused(
    path: Path, mark: Path, tmp_path: Path
) -> None:
    await filled(path, mark, 1)
    other = tmp_path / "other.db"
    await filled(other, tmp_path / "other.mark", 5)
    shutil.copy(other, path)
    message = await refusal(path, mark)
    replaced = rf" is store-\w+, but {re.escape(str(mark))} records store-\w+: it was replaced by "
    assert re.match(re.escape(str(path)) + replaced, message)


async def test_an_older_copy_is_refused(path: Path, mark: Path, tmp_path: Path) -> None:
    _, early = await filled(path, mark)
    shutil.copy(path, tmp_path / "copy.db")
    _, last = await filled(path, mark)
    shutil.copy(tmp_path / "copy.db", path)
    message = await refusal(path, mark)
    assert message.startswith(
        f"{path} ends at revision {early}, but revision {last} was acknowledged ({mark}): "
    )


_WRITER = """
import asyncio, sys
from pathlib import Path
from moorage.apiserver.storage import SqliteStore

async def main():
    async with SqliteStore(Path(sys.argv[1]), mark=Path(sys.argv[2])) as store:
        for number in range(20):
            await store.put(f"b/{number}", b"x", 0)
        print(store.revision, flush=True)
        await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""


def started_writer(path: Path, mark: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that serves the store and has written; the revision it was given."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), str(mark)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def test_a_missing_write_ahead_log_is_refused(path: Path, mark: Path) -> None:
    process, last = started_writer(path, mark)
    killed(process)
    path.with_name("state.db-wal").unlink()
    message = await refusal(path, mark)
    assert str(last) in message or "replaced by another" in message or "gone" in message


async def test_after_a_kill_the_store_is_current(path: Path, mark: Path) -> None:
    process, last = started_writer(path, mark)
    killed(process)
    async with SqliteStore(path, mark=mark) as store:
        assert store.revision == last


async def test_a_loss_that_is_accepted_starts_empty_above_every_revision(
    path: Path, mark: Path
) -> None:
    first, last = await filled(path, mark)
    shutil.rmtree(path.parent)
    accept_loss(mark)
    async with SqliteStore(path, mark=mark) as store:
        assert store.identity != first
        assert (await store.range("")).entries == []
        assert await store.put("a/1", b"", 0) > last
    async with SqliteStore(path, mark=mark) as store:
        assert len((await store.range("")).entries) == 1


async def test_an_older_copy_that_is_accepted_gives_no_revision_twice(
    path: Path, mark: Path, tmp_path: Path
) -> None:
    first, early = await filled(path, mark)
    shutil.copy(path, tmp_path / "copy.db")
    _, last = await filled(path, mark)
    shutil.copy(tmp_path / "copy.db", path)
    accept_loss(mark)
    async with SqliteStore(path, mark=mark) as store:
        assert store.identity == first
        assert len((await store.range("a/")).entries) == 3
        # A client that knows the lost revisions lists again.
        for revision in (early, last):
            with pytest.raises(CompactedError):
                await store.history("", revision)
        entry = (await store.range("a/0")).entries[0]
        revision = await store.put("a/0", b"y", entry.revision)
        assert revision > last
        await store.compact(revision)
        with pytest.raises(RevisionConflictError):
            await store.put("a/0", b"y", entry.revision)
    async with SqliteStore(path, mark=mark) as store:
        assert [e.value for e in (await store.range("a/0")).entries] == [b"y"]
        assert store.compacted == revision


async def test_a_damaged_mark_is_refused_by_name(path: Path, mark: Path) -> None:
    await filled(path, mark)
    mark.write_bytes(b"\xff\xfe")
    assert f"{mark}, which records the store's revision, is damaged" in await refusal(path, mark)


async def test_a_store_without_mark_is_taken_over(path: Path, mark: Path) -> None:
    _, last = await filled(path, mark)
    mark.unlink()
    async with SqliteStore(path, mark=mark) as store:
        assert store.revision == last
    assert str(last) in mark.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_store_that_is_served_is_not_served_again(
    path: Path, mark: Path, is_stopped: bool
) -> None:
    process, last = started_writer(path, mark)
    if is_stopped:
        # Its supervisor may be gone and its port free; it would go on acknowledging writes.
        process.send_signal(signal.SIGSTOP)
    try:
        assert f"is in use by process {process.pid}" in await refusal(path, mark)
    finally:
        killed(process)
    async with SqliteStore(path, mark=mark) as store:
        assert store.revision == last


async def test_a_server_that_is_just_ending_is_waited_for(path: Path, mark: Path) -> None:
    process, last = started_writer(path, mark)
    # As after `kill -9` of a cluster and `moor up` right behind it.
    process.kill()
    async with SqliteStore(path, mark=mark) as store:
        assert store.revision == last
    killed(process)


async def test_within_a_process_too_a_store_is_served_once(path: Path, mark: Path) -> None:
    async with SqliteStore(path, mark=mark):
        assert f"process {os.getpid()}" in await refusal(path, mark)
    async with SqliteStore(path, mark=mark):
        pass


async def test_a_start_that_fails_keeps_no_lock(path: Path, mark: Path) -> None:
    await filled(path, mark)
    saved = mark.read_bytes()
    mark.write_bytes(b"")
    await refusal(path, mark)
    mark.write_bytes(saved)
    await asyncio.wait_for(filled(path, mark), 10)
