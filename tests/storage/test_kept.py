"""Stores that are not being served: whether they are what their marks record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from moorage.storage import SqliteStore, StoreBrokenError, check_kept


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
