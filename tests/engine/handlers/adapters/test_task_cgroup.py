"""The cgroup of a task: where it is, and that it goes with what is left in it."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers.adapters import AdapterError, Task
from moorage.engine.handlers.adapters.task_cgroup import cgroup_of, remove_task_cgroup
from moorage.linux.cgroup_control import CgroupError, has_cgroup, process_ids
from moorage.linux.cgroup_removal import CgroupCalls
from tests import cgroup_trees as trees
from tests.running import until


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"linux": {"cgroupsPath": "/a/b"}}, "/a/b"),
        ({"linux": {"cgroupsPath": "a.slice:moorage:b"}}, ""),
        ({"linux": {"cgroupsPath": None}}, ""),
        ({"linux": {}}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_where_it_is(tmp_path: Path, spec: Any, path: str) -> None:
    if spec is not None:
        (tmp_path / "config.json").write_text(json.dumps(spec))
    assert cgroup_of(Task(id="t", bundle=tmp_path, sandbox_id="s", log=None)) == path


class Kernel:
    """Holds a cgroup for some tries; `removed` are the tries."""

    def __init__(self, busy: int) -> None:
        self.busy = busy
        self.removed: list[str] = []
        self.is_there = True
        self.calls = CgroupCalls(
            has=lambda *_: self.is_there, remove=self.remove, kill=lambda *_: (), pause_s=0
        )

    def remove(self, _cgroups: object, path: str) -> None:
        self.removed.append(path)
        if len(self.removed) <= self.busy:
            raise CgroupError(errno.EBUSY, "busy")
        self.is_there = False


NONE: Any = None


@pytest.mark.parametrize("busy", [0, 3])
async def test_it_is_removed_as_soon_as_the_kernel_lets_go(busy: int) -> None:
    kernel = Kernel(busy)
    await remove_task_cgroup(NONE, "", calls=kernel.calls)
    assert kernel.removed == []
    await remove_task_cgroup(NONE, "/a", calls=kernel.calls)
    assert kernel.removed == ["/a"] * (busy + 1)
    await remove_task_cgroup(NONE, "/a", calls=kernel.calls)
    assert len(kernel.removed) == busy + 1


async def test_what_stays_in_it_is_an_error() -> None:
    calls = Kernel(10**9).calls
    with pytest.raises(AdapterError, match="cgroup /a cannot be removed"):
        await remove_task_cgroup(NONE, "/a", 0.01, calls)


async def test_a_process_that_was_left_frozen_goes_with_it() -> None:
    with trees.real_cgroup("/pod/container") as (cgroups, path):
        with trees.enter(cgroups, path, "sleep", "600") as process:
            until(lambda: process_ids(cgroups, path) == {process.pid}, "the process is in it", 5)
            freezers = [
                (directory / file, stop)
                for directory in cgroups.directories(path)
                for file, stop in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1"))
                if (directory / file).exists()
            ]
            for file, stop in freezers:
                file.write_text(stop)
            await remove_task_cgroup(cgroups, path)
            assert process.wait(5) == -9
        assert not has_cgroup(cgroups, path)
