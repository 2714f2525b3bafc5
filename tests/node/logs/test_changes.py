"""That a change in a directory ends a wait, once, and what happens where there is no inotify."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.linux import libc
from moorage.node.logs import DirectoryChanges
from tests.descriptors import descriptors, open_descriptors, opened_since

CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda place: (place / "there").write_text("x"),
    "made": lambda place: (place / "new").mkdir(),
    "renamed into": lambda place: (place.parent / "other").rename(place / "other"),
    "renamed out of": lambda place: (place / "there").rename(place.parent / "there"),
    "removed": lambda place: (place / "there").unlink(),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "other").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/there").touch()
    return tmp_path / "d"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_each_kind_of_change_ends_a_wait(
    place: Path, change: Callable[[Path], object]
) -> None:
    before = descriptors()
    with DirectoryChanges(place) as changes:
        (inotify,) = opened_since(before)
        change(place)
        async with asyncio.timeout(20):
            await changes.wait(1000)
        await changes.wait(0.01)
        # All of it was read, so that nothing wakes the loop any more.
        with pytest.raises(BlockingIOError):
            os.read(inotify, 4096)


async def test_without_a_change_the_time_is_waited(place: Path) -> None:
    with DirectoryChanges(place) as changes:
        # Readers of logs do this after each change: it must not wake them again.
        (place / "there").stat()
        assert (place / "there").read_bytes() == b""
        assert os.listdir(place) == ["there"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await changes.wait(1000)


async def test_the_descriptor_goes_with_the_block(place: Path) -> None:
    before = descriptors()
    with DirectoryChanges(place):
        ((descriptor, of),) = opened_since(before).items()
        assert of == "anon_inode:inotify"
        assert not os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
    assert not opened_since(before)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


async def test_a_directory_that_is_not_there_is_waited_for_in_vain(place: Path) -> None:
    before = open_descriptors()
    with DirectoryChanges(place / "none") as changes:
        assert open_descriptors() == before
        await changes.wait(0.01)


async def test_where_inotify_is_used_up_nothing_is_watched(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        def inotify_init1(self, _flags: int) -> int:
            return -1

    monkeypatch.setattr(libc, "_libc", Libc())
    before = open_descriptors()
    with DirectoryChanges(place) as changes:
        assert open_descriptors() == before
        await changes.wait(0.01)
