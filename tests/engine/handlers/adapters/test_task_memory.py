"""Where the count of memory kills of a task is, in every layout of cgroups, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.engine.handlers.adapters.adapter import Task
from moorage.engine.handlers.adapters.runsc import sandbox_cgroup
from moorage.engine.handlers.adapters.shim.keeper import memory_file_of, was_memory_cut
from moorage.engine.handlers.adapters.task_cgroup import cgroup_of
from moorage.linux.cgroups import Cgroups
from tests import cgroup_trees as trees

V1 = "9:memory,hugetlb:/pods/a\n8:pids:/pods/b\n1:name=systemd:/pods/c\n"
V2 = "0::/pods/a\n"


@pytest.mark.parametrize(
    ("layout", "text", "expected"),
    [
        (trees.v1, V1, "memory/pods/a/memory.oom_control"),
        (trees.v1, "9:pids:/pods/a\n", ""),
        (trees.v2, V2, "pods/a/memory.events"),
        (trees.v2, "0::/\n", "memory.events"),
        (trees.v2, V1, ""),
        (trees.hybrid, V1 + "0::/other\n", "memory/pods/a/memory.oom_control"),
        (trees.hybrid, "0::/other\n" + V1, "memory/pods/a/memory.oom_control"),
        (trees.hybrid, "8:pids:/pods/b\n0::/pods/a\n", "unified/pods/a/memory.events"),
        (trees.v1, "", ""),
        (trees.v2, "9:mem:/x\n0::/pods/a:b\n", "pods/a:b/memory.events"),
    ],
)
def test_the_file_that_counts_memory_kills(
    tmp_path: Path, layout: Callable[[Path], Cgroups], text: str, expected: str
) -> None:
    path = memory_file_of(text, layout(tmp_path))
    assert path == (str(tmp_path / expected) if expected else "")


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        ("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n", True),
        ("low 0\nmax 3\noom 1\noom_kill 0\n", False),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", True),
        ("oom_kill_disable 1\nunder_oom 1\noom_kill 0\n", False),
        ("oom_kill_disable 1\n", False),
        ("", False),
    ],
)
def test_a_kill_for_memory_is_a_count_above_zero(
    tmp_path: Path, content: str, is_cut: bool
) -> None:
    file = tmp_path / "memory.events"
    file.write_text(content)
    assert was_memory_cut(str(file)) is is_cut


def test_missing_file_reports_no_kill(tmp_path: Path) -> None:
    assert not was_memory_cut(str(tmp_path / "absent"))
    assert not was_memory_cut("")


def task(bundle: Path, path: str | None, *, sandbox_id: str = "s1") -> Task:
    bundle.mkdir(parents=True)
    linux = "" if path is None else f'"cgroupsPath": "{path}"'
    (bundle / "config.json").write_text(f'{{"linux": {{{linux}}}}}')
    return Task(id="c1", bundle=bundle, sandbox_id=sandbox_id)


@pytest.mark.parametrize(
    ("path", "own", "of_sandbox"),
    [
        ("/kubepods/pod1/c1", "/kubepods/pod1/c1", "/kubepods/pod1/s1"),
        ("/pod1/c1", "/pod1/c1", "/pod1/s1"),
        # Of the root no other is made: it would hold every pod's.
        ("/c1", "/c1", ""),
        # systemd's own form, and none at all.
        ("kubepods.slice:runsc:c1", "", ""),
        (None, "", ""),
        ("", "", ""),
    ],
)
def test_gvisors_sandbox_has_a_cgroup_beside_its_containers(
    tmp_path: Path, path: str | None, own: str, of_sandbox: str
) -> None:
    result = task(tmp_path / "b", path)
    assert cgroup_of(result) == own
    assert sandbox_cgroup(result) == of_sandbox


def test_a_bundle_without_a_spec_has_no_cgroup(tmp_path: Path) -> None:
    missing = Task(id="c1", bundle=tmp_path / "absent", sandbox_id="s1")
    assert cgroup_of(missing) == sandbox_cgroup(missing) == ""
