"""Changes in directories, from the real kernel."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from moorage.linux.inotify import CREATIONS, DirectoryChange, Inotify

DEADLINE_S = 5.0
QUEUED_EVENTS = Path("/proc/sys/fs/inotify/max_queued_events")


async def next_changes(watching: Inotify) -> tuple[DirectoryChange, ...]:
    async with asyncio.timeout(DEADLINE_S):
        return await watching.changes()


async def test_written_file_is_reported_once_it_is_closed(tmp_path: Path) -> None:
    with Inotify() as inotify:
        assert inotify.watch(tmp_path)
        with (tmp_path / "a").open("w") as file:
            file.write("x")
            file.flush()
            waiting = asyncio.create_task(next_changes(inotify))
            done, _ = await asyncio.wait({waiting}, timeout=0.05)
            assert not done
        assert await waiting == (DirectoryChange(tmp_path, "a"),)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("rename", {"old", "new"}),
        ("move in", {"new"}),
        ("move out", {"old"}),
        ("remove", {"old"}),
        ("link", {"new"}),
        ("symlink", {"new"}),
        ("directory", {"new"}),
        ("mode", {"old"}),
        ("truncate", {"old"}),
    ],
)
async def test_every_change_of_an_entry_is_reported(
    tmp_path_factory: pytest.TempPathFactory, change: str, wanted: set[str]
) -> None:
    tmp_path, other = tmp_path_factory.mktemp("watched"), tmp_path_factory.mktemp("other")
    (other / "moved").touch()
    (tmp_path / "old").touch()
    with Inotify() as inotify:
        inotify.watch(tmp_path)
        match change:
            case "rename":
                os.replace(tmp_path / "old", tmp_path / "new")
            case "move in":
                (other / "moved").rename(tmp_path / "new")
            case "move out":
                (tmp_path / "old").rename(other / "new")
            case "truncate":
                (tmp_path / "old").open("w").close()
            case "remove":
                (tmp_path / "old").unlink()
            case "link":
                os.link(tmp_path / "old", tmp_path / "new")
            case "symlink":
                (tmp_path / "new").symlink_to("old")
            case "directory":
                (tmp_path / "new").mkdir()
            case "mode":
                (tmp_path / "old").chmod(0o700)
        names = {event.name for event in await next_changes(inotify)}
    assert names == wanted


async def test_removed_directory_is_reported_and_no_longer_watched(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    with Inotify() as inotify:
        inotify.watch(directory)
        directory.rmdir()
        assert DirectoryChange(directory) in await next_changes(inotify)
        assert inotify.directories == frozenset()


async def test_an_absent_directory_is_not_watched(tmp_path: Path) -> None:
    with Inotify() as inotify:
        assert not inotify.watch(tmp_path / "absent")
        (tmp_path / "file").touch()
        assert not inotify.watch(tmp_path / "file")


async def test_a_forgotten_directory_is_silent(tmp_path: Path) -> None:
    with Inotify() as inotify:
        inotify.watch(tmp_path)
        inotify.forget(tmp_path)
        (tmp_path / "a").touch()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await inotify.changes()


async def test_forgotten_directory_has_no_kernel_watch(
    tmp_path: Path,
) -> None:
    with Inotify() as changes:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            assert changes.watch(tmp_path / name)
        assert watches(changes) == 2
        changes.forget(tmp_path / "none")
        changes.forget(tmp_path / "a")
        assert (watches(changes), changes.directories) == (1, frozenset({tmp_path / "b"}))
        (tmp_path / "b").rename(tmp_path / "c")
        async with asyncio.timeout(20):
            assert await changes.changes() == (DirectoryChange(tmp_path / "b"),)
        assert (watches(changes), changes.directories) == (0, frozenset())


def watches(changes: Inotify) -> int:
    text = Path(f"/proc/self/fdinfo/{changes.fileno()}").read_text()
    return sum(line.startswith("inotify ") for line in text.splitlines())


async def test_new_entry_that_no_writer_will_close_is_reported_at_once(tmp_path: Path) -> None:
    with Inotify() as changes:
        changes.watch(tmp_path)
        with (tmp_path / "written").open("w"):
            (tmp_path / "link").symlink_to("written")
            assert await next_changes(changes) == (DirectoryChange(tmp_path, "link"),)
            (tmp_path / "hard").hardlink_to(tmp_path / "written")
            # The link count of the other file has changed as well.
            assert DirectoryChange(tmp_path, "hard") in await next_changes(changes)
        assert set(await next_changes(changes)) == {DirectoryChange(tmp_path, "written")}
        # It has gone again: it is not being written, whatever it was.
        (tmp_path / "gone").touch()
        (tmp_path / "gone").unlink()
        seen = await next_changes(changes)
    assert seen.count(DirectoryChange(tmp_path, "gone")) >= 3


async def test_another_refusal_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Inotify() as changes:
        assert not changes.watch(tmp_path / "file")
        with pytest.raises(OSError, match="File name too long"):
            changes.watch(tmp_path / ("x" * 300))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Inotify()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_closed_inotify_leaves_nothing_on_the_loop(tmp_path: Path) -> None:
    """The next one gets its descriptor number, and the loop must not take it for the old one."""
    with Inotify() as first:
        first.watch(tmp_path)
        number = first.fileno()
        waiting = asyncio.create_task(first.changes())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    with Inotify() as second:
        assert second.fileno() == number
        second.watch(tmp_path)
        awaited = asyncio.create_task(next_changes(second))
        await asyncio.sleep(0)
        (tmp_path / "new").mkdir()
        assert await awaited == (DirectoryChange(tmp_path, "new"),)


async def test_more_changes_than_the_kernel_queues_are_uncertain(tmp_path: Path) -> None:
    limit = int(QUEUED_EVENTS.read_text())  # noqa: ASYNC240
    if limit > 50_000:
        pytest.skip(f"fs.inotify.max_queued_events is {limit}")
    for name in ("a", "b"):
        (tmp_path / name).touch()
    with Inotify() as watching:
        watching.watch(tmp_path)
        # Equal events in a row are merged, so they alternate.
        for _ in range(limit // 2 + 1):
            os.chmod(tmp_path / "a", 0o600)
            os.chmod(tmp_path / "b", 0o600)
        changes: list[DirectoryChange] = []
        while not any(change.is_uncertain for change in changes):
            changes += await next_changes(watching)
    assert changes[-1] == DirectoryChange(Path("/"), is_uncertain=True)
    assert set(changes[:-1]) == {DirectoryChange(tmp_path, "a"), DirectoryChange(tmp_path, "b")}


async def test_reading_a_file_is_not_reported(tmp_path: Path) -> None:
    """Each reader of a directory of handlers would have it read again otherwise."""
    (tmp_path / "file").write_text("text")
    with Inotify() as watching:
        watching.watch(tmp_path)
        with open(tmp_path / "file") as file:  # noqa: ASYNC230
            assert file.read() == "text"
        assert os.listdir(tmp_path) == ["file"]
        (tmp_path / "new").mkdir()
        assert await next_changes(watching) == (DirectoryChange(tmp_path, "new"),)


async def test_unmounted_or_moved_directory_is_no_longer_watched(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with Inotify() as watching:
        watching.watch(tmp_path / "a")
        watching.watch(tmp_path / "b")
        (tmp_path / "a").rename(tmp_path / "c")
        assert await next_changes(watching) == (DirectoryChange(tmp_path / "a"),)
        assert watching.directories == {tmp_path / "b"}
        # What happens in it is no change of what is at that place now.
        (tmp_path / "c/below").mkdir()
        (tmp_path / "b/below").mkdir()
        assert await next_changes(watching) == (DirectoryChange(tmp_path / "b", "below"),)


async def test_a_program_that_is_started_does_not_inherit_it() -> None:
    with Inotify() as watching:
        assert not os.get_inheritable(watching.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(watching.fileno())


@pytest.mark.parametrize("length", [1, 11, 12, 15, 16, 17, 31, 200, 255])
async def test_simultaneous_changes_are_distinguished_for_all_name_lengths(
    tmp_path: Path, length: int
) -> None:
    names = [letter * length for letter in "abc"]
    with Inotify() as watching:
        watching.watch(tmp_path)
        for name in names:
            (tmp_path / name).mkdir()
        assert await next_changes(watching) == tuple(
            DirectoryChange(tmp_path, entry) for entry in names
        )


async def test_a_new_file_is_reported_at_once_where_its_close_is_not(tmp_path: Path) -> None:
    with Inotify(CREATIONS) as watching:
        watching.watch(tmp_path)
        with (tmp_path / "a").open("w"):
            assert await next_changes(watching) == (DirectoryChange(tmp_path, "a"),)
