"""A store on a small file system: what it does as the disk fills and has room again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.apiserver.storage import SqliteStore, StoreBrokenError
from moorage.apiserver.storage.lock import StoreLock
from moorage.apiserver.storage.sqlite import take_queued
from moorage.linux.capabilities import effective_capabilities
from moorage.linux.mounts import mount, unmount

_MIB = 1 << 20
_RESERVE = 3 * _MIB
_VALUE = b"v" * 2000
FULL = "only deletions are accepted until space is freed"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if "CAP_SYS_ADMIN" not in effective_capabilities(Path("/proc/self/status").read_text()):
        pytest.skip("a small file system needs CAP_SYS_ADMIN to be mounted")
    directory = tmp_path / "disk"
    directory.mkdir()
    mount("none", directory, "tmpfs", f"size={16 * _MIB}")
    yield directory
    unmount(directory)


def store_on(disk: Path) -> SqliteStore:
    return SqliteStore(disk / "s.db", mark=disk / "s.mark", reserve_bytes=_RESERVE)


def reserve_of(disk: Path) -> Path:
    return disk / "s.db.reserve"


def fill(disk: Path) -> None:
    """Take every block that is free."""
    with (disk / "other").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


async def fill_store(store: SqliteStore, disk: Path) -> dict[str, int]:
    """Write until the store takes no more; what was acknowledged."""
    written = {f"a/{number}": await store.put(f"a/{number}", _VALUE, 0) for number in range(50)}
    fill(disk)
    for number in range(20_000):
        try:
            written[f"b/{number}"] = await store.put(f"b/{number}", _VALUE, 0)
        except StoreBrokenError:
            fill(disk)
            return written
    raise AssertionError("the disk is never full")


async def test_a_full_disk_costs_the_reserve_and_room_brings_it_back(disk: Path) -> None:
    async with store_on(disk) as store:
        assert reserve_of(disk).stat().st_blocks * 512 >= _RESERVE
        written = await fill_store(store, disk)
        assert not reserve_of(disk).exists()
        with pytest.raises(StoreBrokenError, match=FULL):
            await store.put("c/1", _VALUE, 0)
        # In one batch those that may are written, and the others refused.
        done = await asyncio.gather(
            store.put("c/1", _VALUE, 0),
            store.delete("a/0", _VALUE, written.pop("a/0")),
            store.put("c/2", _VALUE, 0, may_use_reserve=True),
            store.put("c/3", _VALUE, 0),
            return_exceptions=True,
        )
        assert [isinstance(outcome, StoreBrokenError) for outcome in done] == [
            True,
            False,
            False,
            True,
        ]
        keys = [entry.key for entry in (await store.range("")).entries]
        assert sorted(keys) == sorted([*written, "c/2"])
        (disk / "other").unlink()
        await store.put("c/1", _VALUE, 0)
        assert reserve_of(disk).stat().st_blocks * 512 >= _RESERVE


async def test_all_can_be_deleted_and_compacted_on_a_full_disk(disk: Path) -> None:
    async with store_on(disk) as store:
        written = await fill_store(store, disk)
        for key, revision in written.items():
            await store.delete(key, _VALUE, revision)
        await store.compact(store.revision)
        assert not (await store.range("")).entries
        assert store.compacted == store.revision


async def test_compaction_takes_the_reserve_on_a_full_disk(disk: Path) -> None:
    async with store_on(disk) as store:
        for number in range(50):
            revision = await store.put(f"a/{number}", _VALUE, 0)
            await store.delete(f"a/{number}", _VALUE, revision)
        fill(disk)
        for _ in range(200):
            await store.compact(store.revision)
            revision = await store.put("b/1", _VALUE, 0, may_use_reserve=True)
            await store.delete("b/1", _VALUE, revision)
        assert not (await store.range("")).entries


async def test_a_store_opens_on_a_full_disk(disk: Path) -> None:
    async with store_on(disk) as store:
        written = await fill_store(store, disk)
    fill(disk)
    async with store_on(disk) as store:
        keys = {entry.key: entry.revision for entry in (await store.range("")).entries}
        assert keys == written
        for key, revision in written.items():
            await store.delete(key, _VALUE, revision)
    fill(disk)
    async with store_on(disk) as store:
        assert not (await store.range("")).entries
        (disk / "other").unlink()
        await store.put("c/1", _VALUE, 0)


def open_below(directory: Path) -> list[str]:
    """The files in a directory that this process has open."""
    results = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{directory}/"):
            results.append(target)
    return results


async def test_a_closed_store_has_no_file_open(tmp_path: Path) -> None:
    for _ in range(2):
        async with SqliteStore(tmp_path / "s.db") as store:
            await store.put(f"a/{store.revision}", b"x", 0)
            assert open_below(tmp_path)
        assert not open_below(tmp_path)


async def test_a_store_whose_mark_cannot_be_written_is_not_served(tmp_path: Path) -> None:
    mark = tmp_path / "absent" / "s.mark"
    with pytest.raises(StoreBrokenError, match=f"{mark}, which records .* cannot be written: No"):
        async with SqliteStore(tmp_path / "s.db", mark=mark):
            raise AssertionError("served")
    assert not open_below(tmp_path)


async def test_writes_that_wait_are_done_before_the_store_closes(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        writing = [asyncio.create_task(store.put(f"a/{n}", b"x", 0)) for n in range(20)]
        await asyncio.sleep(0)
    assert sorted(await asyncio.gather(*writing)) == list(range(1, 21))
    async with SqliteStore(tmp_path / "s.db") as store:
        assert len((await store.range("a/")).entries) == 20


def test_the_end_of_a_queue_is_seen_by_the_take_after_the_last_items() -> None:
    items: queue.SimpleQueue[object] = queue.SimpleQueue()
    for item in (1, 2, None):
        items.put(item)
    assert take_queued(items) == [1, 2]  # type: ignore[arg-type, comparison-overlap]
    assert items.qsize() == 1
    assert take_queued(items) is None  # type: ignore[arg-type]


def test_a_lock_file_names_its_holder_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db.lock"
    path.write_text("99999999999999999999\nmore\n")
    lock = StoreLock.acquire(tmp_path / "s.db")
    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_lock_file_replaced_while_it_is_locked_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db.lock"
    real = fcntl.flock
    calls: list[int] = []

    def replaced_at_first(descriptor: int, operation: int) -> None:
        if not calls:
            path.unlink()
        calls.append(operation)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replaced_at_first)
    lock = StoreLock.acquire(tmp_path / "s.db")
    assert len(calls) == 2
    assert open_below(tmp_path) == [str(path)]
    lock.release()
    assert not open_below(tmp_path)
