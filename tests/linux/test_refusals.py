"""What the kernel refuses midway: nothing stays mounted, running, open or on record."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from moorage.linux import libc, namespaces, network_devices, reaper, trees
from moorage.linux import mounts as bind_module
from moorage.linux.child import Child
from moorage.linux.mounts import bind
from moorage.linux.process_io import written_bytes
from moorage.linux.reaper import Reaper
from tests.descriptors import open_descriptors


@pytest.mark.parametrize(("is_read_only", "flags"), [(True, [4096, 1 << 18, 4129]),
                                                     (False, [4096, 1 << 18])])  # fmt: skip
def test_the_steps_of_a_bind(
    monkeypatch: pytest.MonkeyPatch, is_read_only: bool, flags: list[int]
) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(libc, "mount", lambda *arguments, flags: steps.append((*arguments, flags)))
    monkeypatch.setattr(bind_module, "unmount", lambda target: steps.append(target))
    bind(Path("/a"), Path("/b"), is_read_only=is_read_only)
    sources = [Path("/a"), None, None][: len(flags)]
    assert steps == [
        (source, Path("/b"), flag) for source, flag in zip(sources, flags, strict=True)
    ]


@pytest.mark.parametrize(("fails_at", "unmounts"), [(1, 0), (2, 1), (3, 1)])
def test_a_bind_that_fails_is_taken_away(
    monkeypatch: pytest.MonkeyPatch, fails_at: int, unmounts: int
) -> None:
    mounts: list[Any] = []
    unmounted: list[Path] = []

    def mount(*arguments: Any, flags: int) -> None:
        mounts.append((*arguments, flags))
        if len(mounts) == fails_at:
            raise OSError(errno.EPERM, "refused")

    monkeypatch.setattr(libc, "mount", mount)
    monkeypatch.setattr(bind_module, "unmount", unmounted.append)
    with pytest.raises(OSError, match="refused"):
        bind(Path("/a"), Path("/b"), is_read_only=True)
    assert unmounted == [Path("/b")] * unmounts


async def test_a_child_that_cannot_be_held_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []

    def refuse(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OSError, match="too many"):
        Child(["/bin/sleep", "600"])
    assert pids[0] not in Child.awaited
    # Its status was taken: no zombie is left.
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_socket_whose_caller_has_gone_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, made = threading.Event(), socket.socket()

    def work() -> socket.socket:
        assert go_on.wait(20)
        return made

    monkeypatch.setattr(namespaces, "enter", lambda *_: None)
    asking = asyncio.ensure_future(namespaces.in_namespace(Path("/n"), 0, work))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go_on.set()
    async with asyncio.timeout(20):
        while made.fileno() >= 0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_what_is_done_in_a_namespace_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []
    monkeypatch.setattr(namespaces, "enter", lambda *arguments: entered.append(arguments))
    assert await namespaces.in_namespace(Path("/n"), 7, lambda: 5) == 5

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await namespaces.in_namespace(Path("/n"), 7, fail)
    assert entered == [(Path("/n"), 7)] * 2


def test_only_so_many_ends_are_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_MOST_RECORDS", 2)
    taker = Reaper()
    for pid in (1, 2, 3):
        taker._record(pid, pid)
    assert dict(taker._statuses) == {2: 2, 3: 3}


async def test_watched_exit_is_returned_once_and_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reaped: list[str] = []
    taker = Reaper()
    monkeypatch.setattr(reaper, "parent", lambda _: os.getpid())
    monkeypatch.setattr(taker, "reap", lambda: reaped.append("reaped"))
    taker._statuses[5] = 9
    future = taker.watch(5)
    assert taker.watch(5) is future
    # It may have ended before it was watched, and no signal comes for that any more.
    assert (reaped, dict(taker._statuses), future.done()) == (["reaped"], {}, False)
    taker._record(5, 3)
    assert (future.result(), dict(taker._statuses)) == (3, {})
    cancelled = taker.watch(5)
    cancelled.cancel()
    taker._record(5, 4)
    assert dict(taker._statuses) == {}


@pytest.mark.parametrize(("status", "code"), [(3, 3), (-9, 137), (0, 0)])
def test_the_code_of_a_signal(monkeypatch: pytest.MonkeyPatch, status: int, code: int) -> None:
    ended = [type("Ended", (), {"si_pid": 7})(), None]
    monkeypatch.setattr(reaper, "_next_ended", lambda: ended.pop(0))
    monkeypatch.setattr(reaper, "exit_status", lambda _: status)
    taker = Reaper()
    taker.reap()
    assert dict(taker._statuses) == {7: code}


class Libc:
    """Refuses every call; what was asked is in `asked`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, _name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.asked.append(arguments)
            ctypes.set_errno(errno.EPERM)
            return -1

        return call


def test_a_process_that_may_take_no_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Libc()
    monkeypatch.setattr(libc, "_libc", fake)
    for is_on in (True, False):
        with pytest.raises(PermissionError):
            libc.set_child_subreaper(is_on=is_on)
    assert fake.asked == [(36, 1, 0, 0, 0), (36, 0, 0, 0, 0)]


def test_a_namespace_that_may_not_be_entered_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net").touch()
    before = open_descriptors()
    monkeypatch.setattr(libc, "_libc", Libc())
    with pytest.raises(PermissionError):
        network_devices._read_inside(tmp_path / "net")
    assert open_descriptors() == before


def test_what_a_process_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/proc/7/io": "rchar: 5\nwchar: 12\nwrite_bytes: 3\n", "/proc/8/io": "rchar: 5\n"}
    monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])
    assert (written_bytes(7), written_bytes(8)) == (12, None)


def test_the_place_of_a_failure_is_named_as_far_as_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that stays is named, whatever else fails after it."""
    for name in ("a", "b"):
        (tmp_path / "t" / name).mkdir(parents=True)
        (tmp_path / "t" / name / "file").touch()
    whole = os.unlink

    def unlink(name: Any, *arguments: Any, **more: Any) -> None:
        if name == "file":
            raise OSError(errno.EIO, "broken")
        whole(name, *arguments, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(OSError, match="broken") as failed:
        trees.remove_tree(tmp_path / "t")
    assert Path(str(failed.value.filename)).name == "file"
    monkeypatch.setattr(trees, "_LONGEST_TEXT", 20)
    with pytest.raises(OSError, match="broken") as failed:
        trees.remove_tree(tmp_path / "t")
    place = str(failed.value.filename)
    assert len(place) == 21
    assert place[10] == "…"
    assert place.endswith("/file")
