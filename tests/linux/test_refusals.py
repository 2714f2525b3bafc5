"""What the kernel refuses midway: nothing stays running, open or on record."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.child import Child
from moorage.linux.namespaces import NETWORK, in_namespace
from moorage.linux.reaper import Reaper
from moorage.linux.trees import remove_tree

OWN_NAMESPACE = Path("/proc/self/ns/net")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="entering a namespace needs root")


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


@as_root
async def test_a_socket_whose_caller_has_gone_is_closed() -> None:
    go_on, made = threading.Event(), socket.socket()

    def work() -> socket.socket:
        assert go_on.wait(20)
        return made

    asking = asyncio.ensure_future(in_namespace(OWN_NAMESPACE, NETWORK, work))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go_on.set()
    async with asyncio.timeout(20):
        while made.fileno() >= 0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@as_root
async def test_what_is_done_in_a_namespace_is_handed_back() -> None:
    assert await in_namespace(OWN_NAMESPACE, NETWORK, lambda: 5) == 5

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await in_namespace(OWN_NAMESPACE, NETWORK, fail)


def child(status: int) -> tuple[int, int]:
    """Return a process and the pipe whose end lets it exit."""
    waiting, going = os.pipe()
    script = f"read go; {f'kill {status} $$' if status < 0 else f'exit {status}'}"
    actions = [(os.POSIX_SPAWN_DUP2, waiting, 0)]
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ, file_actions=actions)
    os.close(waiting)
    return pid, going


def end(pid: int, going: int) -> None:
    os.close(going)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize(("status", "code"), [(3, 3), (-9, 137), (0, 0)])
async def test_an_exit_is_returned_once(status: int, code: int) -> None:
    reaper = Reaper()
    watched, unwatched, cancelled = child(status), child(status), child(status)
    future = reaper.watch(watched[0])
    assert reaper.watch(watched[0]) is future
    reaper.watch(cancelled[0]).cancel()
    for started in (watched, unwatched, cancelled):
        end(*started)
    reaper.reap()
    assert (await future, await reaper.watch(unwatched[0])) == (code, code)
    for pid, _ in (watched, unwatched, cancelled):
        with pytest.raises(ProcessLookupError):
            reaper.watch(pid)


async def test_only_so_many_exits_are_on_record() -> None:
    reaper, started = Reaper(most_records=2), [child(number) for number in (1, 2, 3)]
    for pid, going in started:
        end(pid, going)
        reaper.reap()
    with pytest.raises(ProcessLookupError):
        reaper.watch(started[0][0])
    assert [await reaper.watch(pid) for pid, _ in started[1:]] == [2, 3]


def test_the_place_of_a_failure_is_named_as_far_as_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that stays is named, whatever else fails after it."""
    deep = tmp_path.joinpath("deep", *["d" * 100] * 4)
    for directory in (tmp_path / "t/a", tmp_path / "t/b", deep):
        directory.mkdir(parents=True)
        (directory / "file").touch()
    whole = os.unlink

    def unlink(name: Any, *arguments: Any, **more: Any) -> None:
        if name == "file":
            raise OSError(errno.EIO, "broken")
        whole(name, *arguments, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(OSError, match="broken") as failed:
        remove_tree(tmp_path / "t")
    assert Path(str(failed.value.filename)).name == "file"
    with pytest.raises(OSError, match="broken") as failed:
        remove_tree(tmp_path / "deep")
    place = str(failed.value.filename)
    assert len(place) == 301
    assert place[150] == "…"
    assert place.endswith("/file")
