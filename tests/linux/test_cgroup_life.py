"""Cgroups made, emptied and removed: on ordinary folders, and on this machine's own."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from moorage.linux.cgroup_life import (
    CgroupError,
    has_cgroup,
    kill_processes,
    make_cgroup,
    process_ids,
    remove_cgroup,
    remove_if_empty,
)
from moorage.linux.cgroups import Cgroups
from tests import cgroup_trees as trees
from tests.running import until


def with_cpusets(mount: Path, path: str) -> None:
    """The files that the kernel makes in a cpuset."""
    folder = mount
    trees.write(folder, {"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"})
    for name in path.strip("/").split("/"):
        folder = folder / name
        trees.write(folder, {"cpuset.cpus": "\n", "cpuset.mems": "\n"})


def test_version_one_gets_it_in_every_hierarchy_with_a_cpuset_to_enter(tmp_path: Path) -> None:
    cgroups = trees.hybrid(tmp_path)
    with_cpusets(tmp_path / "cpuset", trees.POD)
    assert make_cgroup(cgroups, trees.POD) == ("/pods", "/pods/a")
    assert all(folder.is_dir() for folder in cgroups.folders(trees.POD))
    assert (tmp_path / "cpuset/pods/a/cpuset.cpus").read_text() == "0-3"
    assert make_cgroup(cgroups, trees.POD) == ()


def test_version_two_passes_controllers_down(tmp_path: Path) -> None:
    cgroups = trees.v2(tmp_path)
    for folder, enabled in ((tmp_path, "memory"), (tmp_path / "pods", "")):
        trees.write(folder, {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": enabled})
    assert make_cgroup(cgroups, trees.POD) == ("/pods/a",)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "pods/cgroup.subtree_control").read_text() == "+cpu +memory"


def test_a_hybrids_second_version_keeps_its_controllers(tmp_path: Path) -> None:
    cgroups = trees.hybrid(tmp_path)
    with_cpusets(tmp_path / "cpuset", trees.POD)
    unified = tmp_path / "unified"
    trees.write(unified, {"cgroup.controllers": "hugetlb", "cgroup.subtree_control": ""})
    make_cgroup(cgroups, trees.POD)
    assert (unified / "cgroup.subtree_control").read_text() == ""


def test_what_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text("a file")
    trees.write(tmp_path, {"cgroup.controllers": "", "cgroup.subtree_control": ""})
    with pytest.raises(CgroupError, match="failed to create cgroup /pods/a: File exists"):
        make_cgroup(trees.v2(tmp_path), trees.POD)


def test_processes_of_other_namespaces_are_not_ours_to_kill(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"cgroup.procs": "0\n7\n"})
    trees.write(tmp_path / "pods/a/inner", {"cgroup.procs": "8\n0\n"})
    assert process_ids(trees.v2(tmp_path), trees.POD) == {7, 8}


def test_who_is_in_there_itself_kills_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "pods/a"
    trees.write(folder, {"cgroup.procs": f"{os.getpid()}\n", "cgroup.kill": ""})
    with pytest.raises(CgroupError, match="holds this process itself"):
        kill_processes(trees.v2(tmp_path), trees.POD)
    assert (folder / "cgroup.kill").read_text() == ""


def test_version_two_kills_by_its_own_means_and_lets_nothing_frozen(tmp_path: Path) -> None:
    folder = tmp_path / "pods/a"
    files = {"cgroup.procs": "", "cgroup.kill": "", "cgroup.freeze": ""}
    trees.write(folder, files)
    assert kill_processes(trees.v2(tmp_path), trees.POD) == ()
    assert (folder / "cgroup.kill").read_text() == "1"
    assert (folder / "cgroup.freeze").read_text() == "0"


def test_the_root_is_never_killed(tmp_path: Path) -> None:
    for call in (kill_processes, remove_cgroup, remove_if_empty):
        with pytest.raises(ValueError, match="below the root"):
            call(trees.v2(tmp_path), "/")


def test_empty_ones_go_and_others_stay(tmp_path: Path) -> None:
    cgroups = trees.v2(tmp_path)
    (tmp_path / "pods/a").mkdir(parents=True)
    (tmp_path / "pods/b").mkdir()
    for path in ("/pods/a", "/pods", "/pods/gone"):
        remove_if_empty(cgroups, path)
    assert [each.name for each in tmp_path.rglob("*")] == ["pods", "b"]


def test_removal_takes_what_is_below(tmp_path: Path) -> None:
    cgroups = trees.v2(tmp_path)
    (tmp_path / "pods/a/inner/most").mkdir(parents=True)
    remove_cgroup(cgroups, "/pods/a")
    remove_cgroup(cgroups, "/pods/a")
    assert not has_cgroup(cgroups, "/pods/a")
    assert has_cgroup(cgroups, "/pods")


def test_what_stays_is_named(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"held": ""})
    with pytest.raises(CgroupError, match="failed to remove cgroup /pods/a") as caught:
        remove_cgroup(trees.v2(tmp_path), "/pods/a")
    assert caught.value.errno == errno.ENOTEMPTY


def test_a_real_one_is_made_listed_emptied_and_removed() -> None:
    with trees.real_cgroup("/pod/container") as (cgroups, path):
        inner = f"{path}/inner"
        assert make_cgroup(cgroups, inner) == (inner,)
        with trees.enter(cgroups, inner, "sleep", "600") as process:
            until(lambda: is_sleeping(cgroups, path, process), "the process is in it", 5)
            with pytest.raises(CgroupError, match="failed to remove"):
                remove_cgroup(cgroups, path)
            for held in kill_processes(cgroups, path):
                held.close()
            assert process.wait(5) == -9
        assert kill_processes(cgroups, path) == ()


def is_sleeping(cgroups: Cgroups, path: str, process: subprocess.Popen[bytes]) -> bool:
    name = Path(f"/proc/{process.pid}/comm").read_text().strip()
    return name == "sleep" and process_ids(cgroups, path) == {process.pid}
