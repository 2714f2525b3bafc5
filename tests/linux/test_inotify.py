"""Changes in folders, from the real kernel."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from moorage.linux.inotify import FolderChange, Inotify

DEADLINE_S = 5.0


async def next_changes(inotify: Inotify) -> tuple[FolderChange, ...]:
    async with asyncio.timeout(DEADLINE_S):
        return await inotify.changes()


async def test_a_written_file_is_told_of_once_it_is_whole(tmp_path: Path) -> None:
    with Inotify() as inotify:
        assert inotify.watch(tmp_path)
        with (tmp_path / "a").open("w") as file:
            file.write("x")
            file.flush()
            waiting = asyncio.create_task(next_changes(inotify))
            done, _ = await asyncio.wait({waiting}, timeout=0.05)
            assert not done
        assert await waiting == (FolderChange(tmp_path, "a"),)


@pytest.mark.parametrize("change", ["rename", "remove", "link", "symlink", "folder", "mode"])
async def test_every_way_an_entry_changes_is_told_of(tmp_path: Path, change: str) -> None:
    (tmp_path / "old").touch()
    with Inotify() as inotify:
        inotify.watch(tmp_path)
        match change:
            case "rename":
                os.replace(tmp_path / "old", tmp_path / "new")
            case "remove":
                (tmp_path / "old").unlink()
            case "link":
                os.link(tmp_path / "old", tmp_path / "new")
            case "symlink":
                (tmp_path / "new").symlink_to("old")
            case "folder":
                (tmp_path / "new").mkdir()
            case "mode":
                (tmp_path / "old").chmod(0o700)
        names = {each.name for each in await next_changes(inotify)}
    assert names <= {"old", "new"}
    assert names


async def test_a_folder_that_goes_is_told_of_and_watched_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with Inotify() as inotify:
        inotify.watch(folder)
        folder.rmdir()
        assert FolderChange(folder) in await next_changes(inotify)
        assert inotify.folders == frozenset()


async def test_an_absent_folder_is_not_watched(tmp_path: Path) -> None:
    with Inotify() as inotify:
        assert not inotify.watch(tmp_path / "absent")
        (tmp_path / "file").touch()
        assert not inotify.watch(tmp_path / "file")


async def test_a_forgotten_folder_is_silent(tmp_path: Path) -> None:
    with Inotify() as inotify:
        inotify.watch(tmp_path)
        inotify.forget(tmp_path)
        (tmp_path / "a").touch()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await inotify.changes()
