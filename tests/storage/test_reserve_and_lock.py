"""The file that is kept back for a full disk, and the lock that one process holds."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.storage.database import is_disk_full
from moorage.storage.lock import StoreLock
from moorage.storage.reserve import Reserve
from moorage.storage.store import StoreBrokenError
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
    with pytest.raises(StoreBrokenError, match=f"process {holder or '.unknown.'}, which"):
        StoreLock.acquire(database)


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
        "import sys; from pathlib import Path; from moorage.storage.lock import StoreLock; "
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
