"""Stores that are not being served: whether they are what their marks record."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from moorage.storage import SqliteStore, StoreBrokenError, accept_loss, check_kept, database
from moorage.storage.mark import Mark, Recorded, read_mark


async def write(path: Path, mark: Path) -> None:
    async with SqliteStore(path, mark=mark) as store:
        await store.put(f"a/{store.revision}", b"x", 0)


async def test_a_database_is_compared_with_its_mark_before_it_is_served(tmp_path: Path) -> None:
    path, mark, copy = tmp_path / "s.db", tmp_path / "s.mark", tmp_path / "copy"
    # Never made: nothing is lost.
    check_kept(path, mark)
    await write(path, mark)
    check_kept(path, mark)
    shutil.copy(path, copy)
    await write(path, mark)
    check_kept(path, mark)
    shutil.copy(copy, path)
    with pytest.raises(StoreBrokenError, match=r"s\.db ends at revision 1, but revision 2 was"):
        check_kept(path, mark)
    await write(tmp_path / "other.db", tmp_path / "other.mark")
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(StoreBrokenError, match="it was replaced by another"):
        check_kept(path, mark)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(StoreBrokenError, match=r"s\.db cannot be opened"):
        check_kept(path, mark)
    path.unlink()
    with pytest.raises(StoreBrokenError, match=f"{path} is gone, but {mark} records"):
        check_kept(path, mark)


def test_without_a_mark_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"x" * 4096)
    check_kept(tmp_path / "s.db", tmp_path / "s.mark")


def test_marked_invalid_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"x" * 4096)
    Mark.write(tmp_path / "s.mark", Recorded("store-a", 3)).close()
    with pytest.raises(StoreBrokenError, match=r"s\.db cannot be opened: "):
        check_kept(tmp_path / "s.db", tmp_path / "s.mark")


def test_an_accepted_loss_is_of_a_mark_that_is_there(tmp_path: Path) -> None:
    mark = tmp_path / "s.mark"
    accept_loss(mark)
    assert list(tmp_path.iterdir()) == []
    Mark.write(mark, Recorded("store-a", 3)).close()
    accept_loss(mark)
    assert read_mark(mark) is None
    assert read_mark(tmp_path / "s.mark.accepted") == Recorded("store-a", 3)


def test_a_full_disk_is_left_to_the_store_to_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a reserve for that."""
    (tmp_path / "s.db").touch()
    Mark.write(tmp_path / "s.mark", Recorded("store-a", 3)).close()
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL

    def refuse(_: Path) -> sqlite3.Connection:
        raise error

    monkeypatch.setattr(database, "connect_to_read", refuse)
    check_kept(tmp_path / "s.db", tmp_path / "s.mark")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    with pytest.raises(StoreBrokenError, match="cannot be opened: database or disk is full"):
        check_kept(tmp_path / "s.db", tmp_path / "s.mark")
