"""Cgroups of this machine, with real processes in them."""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.cgroups import ContainerCgroups, control
from moorage.engine.errors import FailedError, TimeLimitError
from moorage.engine.handlers.definition import CgroupDriver
from moorage.linux.cgroup_control import CgroupError, has_cgroup, process_ids
from moorage.linux.cgroup_removal import kill_cgroup
from moorage.linux.cgroups import Cgroups, Layout
from tests import cgroup_trees as trees
from tests.running import until

Place = tuple[Cgroups, str]
FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
EATS = "x = bytearray(1 << 30)\n"


@pytest.fixture
def place() -> Iterator[Place]:
    with trees.real_cgroup("/pod/container") as result:
        yield result


def limit(place: Place, controller: str, v1: tuple[str, str], v2: tuple[str, str]) -> None:
    cgroups, path = place
    mount = cgroups.mount_of(controller)
    if mount is None:
        pytest.skip(f"no {controller} controller here")
    file, value = v1 if controller in cgroups.v1 else v2
    (mount / path.lstrip("/") / file).write_text(value)


async def test_a_cgroup_is_killed_with_all_below_it(place: Place) -> None:
    cgroups, path = place
    cgroups_control = ContainerCgroups(cgroups)
    assert await cgroups_control.create_parent(CgroupDriver.CGROUPFS, f"{path}/inner") == (
        f"{path}/inner",
    )
    with (
        trees.enter(cgroups, path, "sleep", "600") as outer,
        trees.enter(cgroups, f"{path}/inner", "sleep", "600") as inner,
    ):
        until(lambda: len(process_ids(cgroups, path)) == 2, "both are in it", 5)
        assert await cgroups_control.processes(path) == {outer.pid, inner.pid}
        await cgroups_control.kill(path, 5)
        assert (outer.wait(5), inner.wait(5)) == (-9, -9)
    assert has_cgroup(cgroups, path)
    await cgroups_control.remove(path, 5)
    await cgroups_control.remove(path, 5)
    assert not has_cgroup(cgroups, path)


async def test_a_fork_bomb_ends(place: Place) -> None:
    cgroups, path = place
    limit(place, "pids", ("pids.max", "60"), ("pids.max", "60"))
    with trees.enter(cgroups, path, sys.executable, "-c", FORKS) as process:
        until(lambda: len(process_ids(cgroups, path)) > 30, "it has forked", 10)
        await ContainerCgroups(cgroups).remove(path, 20)
        assert process.wait(5) == -9
    assert not has_cgroup(cgroups, path)


async def test_a_frozen_container_can_be_killed(place: Place) -> None:
    cgroups, path = place
    with trees.enter(cgroups, path, "sleep", "600") as process:
        until(lambda: process_ids(cgroups, path) == {process.pid}, "it is in it", 5)
        limit(place, "freezer", ("freezer.state", "FROZEN"), ("cgroup.freeze", "1"))
        await ContainerCgroups(cgroups).kill(path, 5)
        assert process.wait(5) == -9


async def test_oom_kills_are_counted(place: Place) -> None:
    cgroups, path = place
    cgroups_control = ContainerCgroups(cgroups)
    size = str(64 << 20)
    limit(place, "memory", ("memory.limit_in_bytes", size), ("memory.max", size))
    assert await cgroups_control.oom_kills(path) == 0
    with trees.enter(cgroups, path, sys.executable, "-c", EATS) as process:
        assert await asyncio.to_thread(process.wait, 30) == -9
    pod = path.rpartition("/")[0]
    assert (await cgroups_control.oom_kills(path), await cgroups_control.oom_kills(pod)) == (1, 1)
    assert await cgroups_control.oom_kills("/gone") is None


async def test_parents_go_when_nothing_is_in_them(place: Place) -> None:
    cgroups, path = place
    cgroups_control = ContainerCgroups(cgroups)
    made = await cgroups_control.create_parent(CgroupDriver.CGROUPFS, f"{path}/pods/a")
    assert made == (f"{path}/pods", f"{path}/pods/a")
    other = await cgroups_control.create_parent(CgroupDriver.CGROUPFS, f"{path}/pods/b")
    await cgroups_control.remove_if_empty(made)
    assert (await cgroups_control.processes(f"{path}/pods/b"), has_cgroup(cgroups, made[0])) == (
        frozenset(),
        True,
    )
    await cgroups_control.remove_if_empty((made[0], *other))
    assert not has_cgroup(cgroups, made[0])


async def test_slices_are_left_to_systemd(tmp_path: Path) -> None:
    cgroups_control = ContainerCgroups(trees.v2(tmp_path))
    assert await cgroups_control.create_parent(CgroupDriver.SYSTEMD, "/pods.slice") == ()
    assert not has_cgroup(trees.v2(tmp_path), "/pods.slice")


async def test_a_machine_without_cgroups_has_nothing_to_do() -> None:
    cgroups_control = ContainerCgroups(Cgroups(Layout.ABSENT))
    assert await cgroups_control.create_parent(CgroupDriver.CGROUPFS, "/pods") == ()
    await cgroups_control.remove("/pods", 1)
    assert (await cgroups_control.processes("/pods"), await cgroups_control.oom_kills("/pods")) == (
        frozenset(),
        None,
    )


async def test_a_removal_that_does_not_work_says_what_hinders(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"held": ""})
    cgroups_control = ContainerCgroups(trees.v2(tmp_path))
    with pytest.raises(TimeLimitError, match=r"/pods/a is not removed after 0\.1 s: .*not empty"):
        await cgroups_control.remove("/pods/a", 0.1)


async def test_failed_parent_creation_is_one_line(tmp_path: Path) -> None:
    trees.write(tmp_path, {"cgroup.controllers": "", "cgroup.subtree_control": "", "pods": ""})
    with pytest.raises(FailedError, match="failed to create cgroup /pods/a") as caught:
        await ContainerCgroups(trees.v2(tmp_path)).create_parent(CgroupDriver.CGROUPFS, "/pods/a")
    assert "Errno" not in caught.value.sentence


async def test_refusal_carries_the_kernels_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_cgroups: Cgroups, path: str) -> None:
        raise CgroupError(errno.EIO, f"{path} is broken")

    made = ContainerCgroups(trees.v1(tmp_path))
    monkeypatch.setattr(control, "remove_if_empty", refuse)
    with pytest.raises(FailedError, match="/a is broken"):
        made.remove_if_empty_now("/a")
    with pytest.raises(FailedError, match="/b is broken"):
        await made.remove_if_empty(("/a", "/b"))
    assert await made.missing(CgroupDriver.SYSTEMD, "/a/b") == ()
    (tmp_path / "memory/a").mkdir()
    assert await made.missing(CgroupDriver.CGROUPFS, "/a/b/c") == ("/a/b", "/a/b/c")


class Held:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("fails", [True, False])
async def test_what_a_cut_short_kill_holds_is_let_go_of(tmp_path: Path, fails: bool) -> None:
    began, go_on, held = threading.Event(), threading.Event(), Held()

    def kill(_cgroups: Cgroups, _path: str) -> tuple[Any, ...]:
        began.set()
        assert go_on.wait(20)
        if fails:
            raise CgroupError(errno.EIO, "broken")
        return (held,)

    killing = asyncio.ensure_future(kill_cgroup(trees.v1(tmp_path), "/a", 20, kill=kill))
    assert await asyncio.to_thread(began.wait, 20)
    killing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killing
    go_on.set()
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    assert held.is_closed != fails
