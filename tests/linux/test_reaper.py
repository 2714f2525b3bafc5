"""Orphans and their statuses: real ones, some with the id that another had."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from moorage.linux.child import Child
from moorage.linux.process import parent, state
from moorage.linux.reaper import Reaper

DEADLINE_S = 10.0
_LAST_ID = Path("/proc/sys/kernel/ns_last_pid")
_TRIES = 100


def orphan(script: str, before: str = "") -> int:
    """A process whose parent has ended; its id. The loop stands still meanwhile."""
    waiting, going = os.pipe()
    # A shell may reap what ends before it does.
    held = f"sh -c 'read go; {script}' <&3 >/dev/null"
    try:
        answer = subprocess.run(
            ["sh", "-c", f"exec 3<&0; {before} {held} & echo $!"],
            stdin=waiting,
            stdout=subprocess.PIPE,
            check=True,
        )
    finally:
        os.close(waiting)
        os.close(going)
    return int(answer.stdout)


def wait_for_zombie(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (state(pid), parent(pid)) != ("Z", os.getpid()):
        assert time.monotonic() < deadline, f"process {pid} is {state(pid)!r}"


def orphan_with_id(pid: int, script: str) -> None:
    """An orphan that has an id that was another's before."""
    for _ in range(_TRIES):
        if orphan(script, f"echo {pid - 1} >{_LAST_ID};") == pid:
            return
    pytest.skip(f"others were always quicker to get the id {pid}")


async def test_orphans_status_is_returned_while_it_runs_and_after_its_exit() -> None:
    async with Reaper() as reaper:
        async with asyncio.timeout(DEADLINE_S):
            assert await reaper.watch(orphan("sleep 0.05; exit 7")) == 7
            assert await reaper.watch(orphan("kill -9 $$")) == 137
        gone = orphan("exit 4")
        wait_for_zombie(gone)
        reaper.reap()
        assert state(gone) == ""
        assert await reaper.watch(gone) == 4


async def test_what_was_never_ours_is_unknown() -> None:
    async with Reaper() as reaper:
        with pytest.raises(ProcessLookupError):
            await reaper.watch(os.getppid())


@pytest.mark.skipif(
    os.geteuid() != 0 or not _LAST_ID.exists(), reason="ids can only be chosen by root"
)
@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_process_does_not_get_the_status_of_an_earlier_one_with_its_id(
    has_ended: bool,
) -> None:
    async with Reaper() as reaper:
        earlier = orphan("exit 137")
        wait_for_zombie(earlier)
        reaper.reap()
        orphan_with_id(earlier, "exit 3" if has_ended else "sleep 0.1; exit 3")
        if has_ended:
            wait_for_zombie(earlier)
        async with asyncio.timeout(DEADLINE_S):
            assert await reaper.watch(earlier) == 3


async def test_cancelled_waiter_takes_the_status_from_no_other() -> None:
    async with Reaper() as reaper, asyncio.timeout(DEADLINE_S):
        pid = orphan("sleep 0.05; exit 5")
        leaving, staying = (asyncio.shield(reaper.watch(pid)) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 5


async def test_a_childs_status_is_left_to_it() -> None:
    async with Reaper(), asyncio.timeout(DEADLINE_S):
        children = [Child(["sh", "-c", f"exit {code}"]) for code in range(40)]
        assert await asyncio.gather(*(child.wait() for child in children)) == list(range(40))
        for process in children:
            process.close()


async def test_orphans_are_reaped_behind_a_child_that_is_not_awaited_yet() -> None:
    """Such a child is the first zombie that the kernel names, again and again."""
    async with Reaper() as reaper, asyncio.timeout(DEADLINE_S):
        child = Child(["true"])
        assert await reaper.watch(orphan("sleep 0.05; exit 4")) == 4
        assert await child.wait() == 0
        child.close()


async def test_a_burst_of_orphans_leaves_no_zombie() -> None:
    async with Reaper(), asyncio.timeout(DEADLINE_S):
        child = Child(["sh", "-c", "for i in $(seq 60); do (exit 3 &) ; done"])
        await child.wait()
        child.close()
        while True:
            if not _zombies():
                break
            await asyncio.sleep(0.01)


def _zombies() -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if (state(pid), parent(pid)) == ("Z", os.getpid())]


async def test_a_watched_orphan_is_known_to_have_ended_as_soon_as_its_status_is_taken(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    async with Reaper() as reaper:
        # It stays until it is watched twice: one that has ended is handed over at the first.
        pid = orphan(f"until [ -e {go} ]; do :; done; exit 3")
        watched = reaper.watch(pid)
        assert reaper.watch(pid) is watched
        go.touch()
        while not watched.done():
            # As long as it isn't done, the id is the orphan's: a signal cannot hit another.
            os.kill(pid, 0)
            await asyncio.sleep(0)
        assert watched.result() == 3


async def test_orphans_come_here_as_long_as_it_is_open_and_signals_are_as_before() -> None:
    libc = ctypes.CDLL(None)

    def is_subreaper() -> bool:
        result = ctypes.c_int(-1)
        assert libc.prctl(37, ctypes.byref(result), 0, 0, 0) == 0
        return bool(result.value)

    before = signal.getsignal(signal.SIGCHLD)
    async with Reaper():
        assert is_subreaper()
        assert signal.getsignal(signal.SIGCHLD) != before
    assert not is_subreaper()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
