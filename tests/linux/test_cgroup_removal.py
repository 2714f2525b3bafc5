"""Cgroups that are removed when the last process has gone, and what is said when none goes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.cgroup_control import CgroupError
from moorage.linux.cgroup_removal import (
    CgroupBusyError,
    kill_and_remove_cgroup,
    kill_and_remove_cgroup_blocking,
    kill_cgroup,
)
from tests import cgroup_trees as trees


class StuckProcess:
    """A process that SIGKILL does not end."""

    pid = 4711

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def ended(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed.set()


async def test_a_cgroup_that_stays_is_named_with_the_reason(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"held": ""})
    with pytest.raises(CgroupBusyError) as caught:
        await kill_and_remove_cgroup(trees.v2(tmp_path), "/pods/a", 2)
    message = str(caught.value)
    assert "cgroup /pods/a is not removed after 2 s: " in message
    assert "2 s: failed to remove cgroup /pods/a: Directory not empty" in message


def test_a_cgroup_that_stays_is_given_up_after_some_tries(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"held": ""})
    with pytest.raises(CgroupError, match="Directory not empty"):
        kill_and_remove_cgroup_blocking(trees.v2(tmp_path), "/pods/a", pause_s=0)


async def test_an_absent_cgroup_is_no_error(tmp_path: Path) -> None:
    await kill_and_remove_cgroup(trees.v2(tmp_path), "/pods/a", 5)


async def test_processes_that_do_not_end_are_named(tmp_path: Path) -> None:
    stuck: Any = StuckProcess()
    with pytest.raises(CgroupBusyError) as caught:
        await kill_cgroup(trees.v2(tmp_path), "/pods/a", 2, kill=lambda *_: (stuck,))
    assert str(caught.value).endswith(
        "cgroup /pods/a is not empty after 2 s: SIGKILL did not end the processes 4711"
    )
    assert stuck.closed.is_set()


async def test_a_kernel_that_does_not_respond(tmp_path: Path) -> None:
    responds = threading.Event()

    def kill(*_: Any) -> tuple[Any, ...]:
        responds.wait()
        return (late,)

    late = StuckProcess()
    with pytest.raises(CgroupBusyError, match="the kernel does not respond"):
        await kill_cgroup(trees.v2(tmp_path), "/pods/a", 0.05, kill=kill)
    responds.set()
    async with asyncio.timeout(20):
        await late.closed.wait()


def test_killed_processes_are_closed_after_each_try(tmp_path: Path) -> None:
    stuck: Any = StuckProcess()
    kill_and_remove_cgroup_blocking(trees.v2(tmp_path), "/pods/a", kill=lambda *_: (stuck,))
    assert stuck.closed.is_set()


async def test_a_cgroup_is_removed_only_when_its_processes_have_ended(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    class EndingProcess(StuckProcess):
        async def ended(self) -> None:
            await may_end.wait()

    killed: Any = iter(((EndingProcess(),), ()))
    removal = asyncio.create_task(
        kill_cgroup(trees.v2(tmp_path), "/pods/a", 20, kill=lambda *_: next(killed))
    )
    done, _ = await asyncio.wait({removal}, timeout=0.1)
    assert not done
    may_end.set()
    await removal
