"""Stores that are not being served: whether they are what their marks record."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from moorage.apiserver.storage import (
    SqliteStore,
    StoreBrokenError,
    accept_loss,
    check_kept,
    database,
)
from moorage.apiserver.storage.loss import check_current, check_made
from moorage.apiserver.storage.mark import Mark, Recorded, read_mark
from tests.descriptors import open_descriptors


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


@pytest.mark.parametrize(
    ("present", "refusal"),
    [
        (Recorded("store-a", 3), None),
        (Recorded("store-a", 4), None),
        (
            Recorded("store-a", 2),
            "/d/s.db ends at revision 2, but revision 3 was acknowledged (/d/s.mark): it is an "
            "older copy, or s.db-wal is missing; put the newest files back, or go on without what "
            "is lost with `moor up --accept-loss`",
        ),
        (
            Recorded("store-b", 4),
            "/d/s.db is store-b, but /d/s.mark records store-a: it was replaced by another, or "
            "s.db-wal is missing; put the right files back, or go on with what is there with "
            "`moor up --accept-loss`",
        ),
    ],
)
def test_a_database_is_compared_with_what_was_recorded(
    present: Recorded, refusal: str | None
) -> None:
    path, mark = Path("/d/s.db"), Path("/d/s.mark")
    check_current(path, mark, None, present)
    if refusal is None:
        check_current(path, mark, Recorded("store-a", 3), present)
        return
    with pytest.raises(StoreBrokenError) as refused:
        check_current(path, mark, Recorded("store-a", 3), present)
    assert str(refused.value) == refusal


def test_database_that_is_gone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path, mark = tmp_path / "s.db", tmp_path / "s.mark"
    check_made(path, mark, None)
    with pytest.raises(StoreBrokenError) as refused:
        check_made(path, mark, Recorded("store-a", 3))
    assert str(refused.value) == (
        f"{path} is gone, but {mark} records that it was made and held revision 3; put it and "
        "s.db-wal back from a copy, or start an empty cluster, which ends the pods that run, with "
        "`moor up --accept-loss`"
    )
    path.touch()
    check_made(path, mark, Recorded("store-a", 3))


def test_a_mark_is_overwritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "s.mark"
    before = open_descriptors()
    written = Mark.write(path, Recorded("store-a", 3))
    head = "# Written by moorage; what it is for: docs/storage.md\nstore store-a\nrevision "
    assert path.read_text() == f"{head}{3:020}\n"
    inode = path.stat().st_ino
    written.record(10**19)
    written.close()
    opened = Mark.open(path, "store-a")
    assert read_mark(path) == Recorded("store-a", 10**19)
    opened.record(4)
    opened.close()
    assert (path.read_text(), path.stat().st_ino) == (f"{head}{4:020}\n", inode)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    "content",
    ["", "store store-a\nrevision 3\n", f"store a b\nrevision {3:020}\n",
     f"store store-a\nrevision {3:020}", f"# store store-a\nrevision {3:020}\n"],
)  # fmt: skip
def test_damaged_mark_is_refused_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.mark"
    assert read_mark(path) is None
    path.write_text(content)
    with pytest.raises(StoreBrokenError) as refused:
        read_mark(path)
    assert str(refused.value) == (
        f"{path}, which records the store's revision, is damaged; put it back as it was, or, if "
        "the database is known to be the newest, remove it"
    )
