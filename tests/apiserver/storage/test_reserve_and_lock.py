"""The file that is kept back for a full disk, and the lock that one process holds."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.apiserver.storage.database import is_disk_full
from moorage.apiserver.storage.lock import StoreLock
from moorage.apiserver.storage.reserve import RESERVE_BYTES, Reserve
from moorage.apiserver.storage.store import StoreBrokenError
from tests.descriptors import open_descriptors

SIZE = 256 * 1024


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def reserved(database: Path) -> Path:
    return database.with_name("state.db.reserve")


def test_the_reserve_is_blocks_that_are_given_up_once(database: Path) -> None:
    reserve = Reserve(database, SIZE)
    assert reserve.is_released
    reserve.fill()
    assert not reserve.is_released
    status = reserved(database).stat()
    assert status.st_blocks * 512 >= SIZE
    assert status.st_mode & 0o777 == 0o600
    reserve.refill()
    assert reserve.release()
    assert reserve.is_released
    assert not reserved(database).exists()
    assert not reserve.release()
    assert not reserve.remove()
    reserve.refill()
    assert not reserve.is_released


def test_a_reserve_from_before_is_taken_over(database: Path) -> None:
    Reserve(database, SIZE).fill()
    inode = reserved(database).stat().st_ino
    again = Reserve(database, SIZE)
    again.fill()
    assert not again.is_released
    assert reserved(database).stat().st_ino == inode


def test_without_room_nothing_is_kept_back_and_nothing_taken(database: Path) -> None:
    # Twice the disk can neither be had nor be half had.
    figures = os.statvfs(database.parent)
    reserve = Reserve(database, 2 * figures.f_blocks * figures.f_frsize)
    reserve.fill()
    assert reserve.is_released
    assert not reserved(database).exists()
    assert not reserve.release()


def test_unwritable_directory_has_no_reserve(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "absent" / "state.db", SIZE)
    reserve.fill()
    assert reserve.is_released


def test_the_log_grows_by_what_the_reserve_had(database: Path) -> None:
    log = database.with_name("state.db-wal")
    reserve = Reserve(database, SIZE)
    reserve.extend_log()
    assert not log.exists()
    log.write_bytes(b"frames")
    reserve.extend_log()
    assert log.stat().st_size > len(b"frames")
    assert log.stat().st_size <= SIZE + len(b"frames")
    assert log.read_bytes().startswith(b"frames\0")


@pytest.mark.parametrize(
    ("code", "is_full"),
    [
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_IOERR, True),
        (sqlite3.SQLITE_IOERR_WRITE, True),
        (sqlite3.SQLITE_CANTOPEN, True),
        (sqlite3.SQLITE_CANTOPEN | (3 << 8), True),
        (sqlite3.SQLITE_CONSTRAINT, False),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, False),
        (sqlite3.SQLITE_CORRUPT, False),
        (0, False),
    ],
)
def test_which_failures_may_come_from_a_full_disk(code: int, is_full: bool) -> None:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    assert is_disk_full(error) is is_full


def test_error_without_code_is_not_a_full_disk() -> None:
    assert not is_disk_full(sqlite3.OperationalError("x"))


@pytest.fixture
def foreign(database: Path) -> Iterator[int]:
    """The lock file, locked by another open file of it."""
    path = database.with_name("state.db.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def test_one_holds_the_lock_until_it_is_released(database: Path) -> None:
    lock = StoreLock.acquire(database)
    path = database.with_name("state.db.lock")
    assert path.read_text() == f"{os.getpid()}\n"
    with pytest.raises(StoreBrokenError, match=f"in use by process {os.getpid()}"):
        StoreLock.acquire(database)
    lock.release()
    StoreLock.acquire(database).release()


@pytest.mark.parametrize("holder", ["", "no number", "1234567890123"])
def test_an_unknown_holder_is_named_as_far_as_it_is_known(
    database: Path, foreign: int, holder: str
) -> None:
    os.pwrite(foreign, holder.encode(), 0)
    with pytest.raises(StoreBrokenError) as refused:
        StoreLock.acquire(database)
    assert str(refused.value) == (
        f"{database} is in use by process {holder or '(unknown)'}, which holds the lock "
        f"{database}.lock; stop that process, then start again"
    )


def test_failed_lock_closes_its_file(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = open_descriptors()
    with pytest.raises(OSError, match="No locks available"):
        StoreLock.acquire(database)
    assert open_descriptors() == before
    assert database.with_name("state.db.lock").stat().st_mode & 0o777 == 0o600


def test_full_disk_leaves_the_lock_without_a_process_id(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        lock = StoreLock.acquire(database)
    with pytest.raises(StoreBrokenError, match=r"in use by process \(unknown\), which"):
        StoreLock.acquire(database)
    lock.release()


def test_longer_process_id_is_replaced(database: Path) -> None:
    database.with_name("state.db.lock").write_text("12345678901234567890\n")
    StoreLock.acquire(database).release()
    assert database.with_name("state.db.lock").read_text() == f"{os.getpid()}\n"


def test_a_holder_that_has_gone_is_waited_for_once(database: Path, foreign: int) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    os.pwrite(foreign, str(gone.pid).encode(), 0)
    # Another process has the lock all the same: the process named is not the one that holds it.
    with pytest.raises(StoreBrokenError, match=f"process {gone.pid}, which"):
        StoreLock.acquire(database)


def test_a_lock_file_that_was_replaced_is_locked_again(database: Path) -> None:
    lock = StoreLock.acquire(database)
    database.with_name("state.db.lock").unlink()
    other = StoreLock.acquire(database)
    with pytest.raises(StoreBrokenError):
        StoreLock.acquire(database)
    other.release()
    lock.release()


def test_a_reserve_that_is_only_had_in_part_is_given_back(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program took the space between the look and the allocation."""

    def allocate(descriptor: int, offset: int, size: int) -> None:
        os.pwrite(descriptor, b"x" * (size // 2), offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    before = open_descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", allocate)
        reserve = Reserve(database, SIZE)
        reserve.fill()
    assert reserve.is_released
    assert not reserved(database).exists()
    assert open_descriptors() == before
    reserve.refill()
    assert not reserve.is_released


def test_a_holder_that_is_being_killed_is_waited_for(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from moorage.apiserver.storage.lock import StoreLock; "
        "held = StoreLock.acquire(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        wait = select.select

        def kill_and_wait(*arguments: Any) -> Any:
            holder.kill()
            return wait(*arguments)

        monkeypatch.setattr(select, "select", kill_and_wait)
        before = open_descriptors()
        lock = StoreLock.acquire(database)
        assert open_descriptors() == before + 1
    assert database.with_name("state.db.lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_reserve_that_cannot_be_removed_gives_no_room(database: Path) -> None:
    database.with_name("state.db.reserve").mkdir()
    assert not Reserve(database, SIZE).remove()


def set_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Report this many free bytes on every disk."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


MARGIN = 128 * 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("free", "grown"),
    [
        (10 * SIZE, SIZE - MARGIN),
        (SIZE, SIZE - MARGIN),
        (SIZE - 4096, SIZE - 4096 - MARGIN),
        (MARGIN + 1, 1),
        (MARGIN, 0),
        (0, 0),
    ],
)
def test_the_log_grows_by_what_is_free_but_a_margin(
    database: Path, monkeypatch: pytest.MonkeyPatch, free: int, grown: int
) -> None:
    log = database.with_name("state.db-wal")
    log.write_bytes(b"frames")
    set_free(monkeypatch, free)
    before = open_descriptors()
    Reserve(database, SIZE).extend_log()
    assert log.read_bytes() == b"frames" + b"\0" * grown
    assert open_descriptors() == before


def test_log_that_cannot_grow_stays_as_it_is(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = database.with_name("state.db-wal")
    log.write_bytes(b"frames")
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = open_descriptors()
    Reserve(database, SIZE).extend_log()
    assert log.read_bytes() == b"frames"
    assert open_descriptors() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fill", "free", "is_filled"),
    [
        (Reserve.fill, SIZE, True),
        (Reserve.fill, SIZE - 1, False),
        (Reserve.refill, 2 * SIZE, True),
        (Reserve.refill, 2 * SIZE - 1, False),
    ],
)
def test_a_reserve_is_kept_where_there_is_room(
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    fill: Callable[[Reserve], None],
    free: int,
    is_filled: bool,
) -> None:
    set_free(monkeypatch, free)
    before = open_descriptors()
    reserve = Reserve(database, SIZE)
    fill(reserve)
    assert open_descriptors() == before
    assert (reserve.is_released, reserved(database).exists()) == (not is_filled, is_filled)
    # One that is there needs no room; one that is there in part is not one.
    set_free(monkeypatch, 0)
    again = Reserve(database, SIZE)
    again.fill()
    assert again.is_released == (not is_filled)
    larger = Reserve(database, 2 * SIZE)
    larger.fill()
    assert larger.is_released
    assert not reserved(database).exists()


def test_the_sizes_of_the_reserve() -> None:
    assert (RESERVE_BYTES, Reserve(Path("s.db")).size) == (6 * 1024 * 1024, RESERVE_BYTES)
