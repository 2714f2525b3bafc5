"""Cgroups made, emptied and removed: on ordinary directories, and on this machine's own."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moorage.linux import cgroup_control
from moorage.linux.cgroup_control import (
    CgroupError,
    enter_cpu_cgroup,
    has_cgroup,
    hold_processes,
    kill_processes,
    make_cgroup,
    make_cpu_cgroup,
    pass_down,
    process_ids,
    remove_cgroup,
    remove_if_empty,
)
from moorage.linux.cgroups import Cgroups, Layout
from tests import cgroup_trees as trees
from tests.running import until


def with_cpusets(mount: Path, path: str) -> None:
    """The files that the kernel makes in a cpuset."""
    directory = mount
    trees.write(directory, {"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"})
    for name in path.strip("/").split("/"):
        directory = directory / name
        trees.write(directory, {"cpuset.cpus": "\n", "cpuset.mems": "\n"})


def test_version_one_gets_it_in_every_hierarchy_with_a_cpuset_to_enter(tmp_path: Path) -> None:
    cgroups = trees.hybrid(tmp_path)
    with_cpusets(tmp_path / "cpuset", trees.POD)
    assert make_cgroup(cgroups, trees.POD) == ("/pods", "/pods/a")
    assert all(directory.is_dir() for directory in cgroups.directories(trees.POD))
    assert (tmp_path / "cpuset/pods/a/cpuset.cpus").read_text() == "0-3"
    assert make_cgroup(cgroups, trees.POD) == ()


def test_version_two_passes_controllers_down(tmp_path: Path) -> None:
    cgroups = trees.v2(tmp_path)
    for directory, enabled in ((tmp_path, "memory"), (tmp_path / "pods", "")):
        trees.write(
            directory, {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": enabled}
        )
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


def test_failed_cgroup_creation_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text("a file")
    trees.write(tmp_path, {"cgroup.controllers": "", "cgroup.subtree_control": ""})
    with pytest.raises(CgroupError, match="failed to create cgroup /pods/a: File exists"):
        make_cgroup(trees.v2(tmp_path), trees.POD)


def test_processes_of_other_namespaces_are_not_ours_to_kill(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"cgroup.procs": "0\n7\n"})
    trees.write(tmp_path / "pods/a/inner", {"cgroup.procs": "8\n0\n"})
    assert process_ids(trees.v2(tmp_path), trees.POD) == {7, 8}


def test_own_cgroup_is_not_killed(tmp_path: Path) -> None:
    directory = tmp_path / "pods/a"
    trees.write(directory, {"cgroup.procs": f"{os.getpid()}\n", "cgroup.kill": ""})
    with pytest.raises(CgroupError, match="holds this process itself"):
        kill_processes(trees.v2(tmp_path), trees.POD)
    assert (directory / "cgroup.kill").read_text() == ""


def test_version_two_kills_by_its_own_means_and_lets_nothing_frozen(tmp_path: Path) -> None:
    directory = tmp_path / "pods/a"
    files = {"cgroup.procs": "", "cgroup.kill": "", "cgroup.freeze": ""}
    trees.write(directory, files)
    assert kill_processes(trees.v2(tmp_path), trees.POD) == ()
    assert (directory / "cgroup.kill").read_text() == "1"
    assert (directory / "cgroup.freeze").read_text() == "0"


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
    assert [file.name for file in tmp_path.rglob("*")] == ["pods", "b"]


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


LIMITED = "/pods/limited"


def test_version_one_limits_processor_time_in_one_hierarchy(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    trees.write(tmp_path / "cpu/pods/limited", {})
    make_cpu_cgroup(cgroups, LIMITED, 10_000, 100_000)
    enter_cpu_cgroup(cgroups, LIMITED, 42)
    directory = tmp_path / "cpu/pods/limited"
    assert (directory / "cpu.cfs_period_us").read_text() == "100000"
    assert (directory / "cpu.cfs_quota_us").read_text() == "10000"
    assert (directory / "cgroup.procs").read_text() == "42"
    assert not (tmp_path / "memory/pods").exists()


def test_version_two_limits_processor_time_in_its_only_hierarchy(tmp_path: Path) -> None:
    cgroups = trees.v2(tmp_path)
    for directory in (tmp_path, tmp_path / "pods"):
        trees.write(directory, {"cgroup.controllers": "cpu", "cgroup.subtree_control": ""})
    make_cpu_cgroup(cgroups, LIMITED, 10_000, 100_000)
    enter_cpu_cgroup(cgroups, LIMITED, 42)
    directory = tmp_path / "pods/limited"
    assert (directory / "cpu.max").read_text() == "10000 100000"
    assert (directory / "cgroup.procs").read_text() == "42"
    assert (tmp_path / "pods/cgroup.subtree_control").read_text() == "+cpu"


def test_a_machine_without_the_cpu_controller_limits_no_processor_time(tmp_path: Path) -> None:
    for cgroups in (trees.v2(tmp_path, controllers=("memory",)), Cgroups(Layout.ABSENT)):
        with pytest.raises(CgroupError, match=f"{LIMITED}: the machine has no cpu controller"):
            make_cpu_cgroup(cgroups, LIMITED, 10_000, 100_000)


def test_a_process_enters_a_real_cpu_cgroup_and_one_that_has_ended_is_no_error() -> None:
    with trees.real_cgroup() as (cgroups, path):
        limited = f"{path}/limited"
        make_cpu_cgroup(cgroups, limited, 10_000, 100_000)
        child = subprocess.Popen(["sleep", "1000"])
        try:
            enter_cpu_cgroup(cgroups, limited, child.pid)
            assert child.pid in process_ids(cgroups, limited)
        finally:
            child.kill()
            child.wait()
        enter_cpu_cgroup(cgroups, limited, child.pid)


def denied(*_: object, **__: object) -> int:
    raise PermissionError(errno.EACCES, "denied", "file")


def test_a_process_enters_it_in_each_hierarchy_that_has_it(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    for name in ("cpu", "memory"):
        (tmp_path / name / "pods").mkdir()
    cgroup_control.enter_cgroup(cgroups, "/pods", 7)
    result = [
        controller
        for controller in sorted(cgroups.v1)
        if (tmp_path / controller / "pods/cgroup.procs").exists()
    ]
    assert result == ["cpu", "memory"]
    assert (tmp_path / "cpu/pods/cgroup.procs").read_text() == "7"
    (tmp_path / "cpu/pods/cgroup.procs").unlink()
    (tmp_path / "cpu/pods/cgroup.procs").mkdir()
    with pytest.raises(CgroupError, match="failed to enter cgroup /pods: Is a directory"):
        cgroup_control.enter_cgroup(cgroups, "/pods", 7)
    with pytest.raises(CgroupError, match="failed to enter cgroup /pods"):
        enter_cpu_cgroup(cgroups, "/pods", 7)


def test_a_refusal_names_what_was_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups = trees.v1(tmp_path)
    (tmp_path / "cpu/pods").mkdir()
    (tmp_path / "cpu/pods/cpu.cfs_quota_us").mkdir()
    with pytest.raises(CgroupError, match="failed to create cgroup /pods: Is a directory"):
        make_cpu_cgroup(cgroups, "/pods", 1, 2)
    monkeypatch.setattr(Path, "rmdir", denied)
    with pytest.raises(CgroupError, match="failed to remove cgroup /pods: denied"):
        remove_if_empty(cgroups, "/pods")


class Held:
    """A process that is held."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Holding:
    """What holds processes, and those that it has held; process 3 has gone."""

    def __init__(self) -> None:
        self.held: list[Held] = []

    def __call__(self, pid: int) -> Any:
        if pid == 3:
            raise ProcessLookupError(pid)
        self.held.append(Held(pid))
        return self.held[-1]


@pytest.mark.parametrize(("members", "kept"), [({1, 2}, [1, 2]), ({2, 4}, [2]), (set(), [])])
def test_only_processes_that_are_still_in_it_are_held(
    tmp_path: Path, members: set[int], kept: list[int]
) -> None:
    looks = [frozenset({1, 2, 3}), frozenset(members)]
    holding = Holding()
    held = hold_processes(trees.v1(tmp_path), "/pods", holding, lambda *_: looks.pop(0))
    assert [handle.pid for handle in held] == kept
    assert [handle.pid for handle in holding.held if not handle.is_closed] == kept


def test_nothing_stays_held_when_the_cgroup_cannot_be_read(tmp_path: Path) -> None:
    looks: list[Any] = [frozenset({1, 2})]

    def look(*_: object) -> Any:
        if looks:
            return looks.pop()
        raise OSError(errno.EIO, "broken")

    holding = Holding()
    with pytest.raises(OSError, match="broken"):
        hold_processes(trees.v1(tmp_path), "/pods", holding, look)
    assert [handle.is_closed for handle in holding.held] == [True, True]


def test_a_controller_that_is_kept_back_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.write(tmp_path, {"cgroup.controllers": "cpu memory pids\n",
                           "cgroup.subtree_control": "pids\n"})  # fmt: skip
    asked: list[str] = []
    refused = {"+cpu"}

    def put(_file: Path, content: str) -> bool:
        asked.append(content)
        return content not in refused

    whole = Path.write_text

    def write_text(file: Path, text: str) -> int:
        if file.name == "cgroup.subtree_control":
            asked.append(text)
            raise OSError(errno.EINVAL, "refused")
        return whole(file, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    pass_down(tmp_path, put)
    assert asked == ["+cpu +memory", "+cpu", "+memory"]
    refused.add("+memory")
    with pytest.raises(OSError, match="refused"):
        pass_down(tmp_path, put)


def test_a_cgroup_whose_processes_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        trees.write(tmp_path / name, {"cgroup.procs": "5\n0\n"})
    (tmp_path / "c").mkdir()
    reads: list[int] = []

    def read(descriptor: int) -> str:
        reads.append(descriptor)
        if len(reads) == 1:
            raise OSError(errno.EOPNOTSUPP, "threads only")
        return "6\n0\n"

    assert list(cgroup_control.process_ids_below(tmp_path, read)) == [6]
    assert list(cgroup_control.process_ids_below(tmp_path / "none")) == []


def test_hierarchies_between_that_lack_a_cgroup_do_not_end_the_walk(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    first, last = cgroups.hierarchies[0], cgroups.hierarchies[-1]
    for mount in (first, last):
        (mount / "pods").mkdir()
    cgroup_control.enter_cgroup(cgroups, "/pods", 7)
    for mount in (first, last):
        assert (mount / "pods/cgroup.procs").read_text() == "7"
        (mount / "pods/cgroup.procs").unlink()
    remove_cgroup(cgroups, "/pods")
    assert not has_cgroup(cgroups, "/pods")


def test_an_exited_process_below_does_not_end_the_count(tmp_path: Path) -> None:
    """A cgroup without cgroup.procs (just removed) hides none of its siblings."""
    for name in ("a", "b", "c"):
        (tmp_path / "pods/x" / name).mkdir(parents=True)
        if name != "b":
            trees.write(tmp_path / "pods/x" / name, {"cgroup.procs": f"{ord(name)}\n"})
    assert process_ids(trees.v2(tmp_path), "/pods/x") == {ord("a"), ord("c")}


@pytest.mark.parametrize(("failures", "is_made"), [(0, True), (2, True), (3, False)])
def test_a_parent_that_is_removed_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, is_made: bool
) -> None:
    cgroups = trees.v1(tmp_path)
    with_cpusets(tmp_path / "cpuset", trees.POD)
    mkdir, left = Path.mkdir, [failures]

    def make(path: Path, *arguments: Any, **more: Any) -> None:
        if path.name == "a" and left[0]:
            left[0] -= 1
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        mkdir(path, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", make)
    if is_made:
        make_cgroup(cgroups, trees.POD)
    else:
        with pytest.raises(CgroupError, match="failed to create cgroup /pods/a") as caught:
            make_cgroup(cgroups, trees.POD)
        assert caught.value.errno == errno.ENOENT
    assert all(directory.is_dir() for directory in cgroups.directories(trees.POD)) == is_made


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC])
@pytest.mark.parametrize("place", ["systemd", "memory", "version 2"])
def test_only_a_hierarchy_without_controllers_may_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, place: str
) -> None:
    """As the named one of systemd is in a container."""
    if place == "version 2":
        cgroups, closed = trees.v2(tmp_path), tmp_path
        trees.write(tmp_path, {"cgroup.controllers": "", "cgroup.subtree_control": ""})
    else:
        whole, closed = trees.v1(tmp_path), tmp_path / place
        with_cpusets(tmp_path / "cpuset", "/pods")
        closed.mkdir(exist_ok=True)
        hierarchies = tuple(dict.fromkeys((*whole.hierarchies, closed)))
        cgroups = Cgroups(Layout.V1, whole.v1, hierarchies=hierarchies)
    mkdir = Path.mkdir

    def make(path: Path, *arguments: Any, **more: Any) -> None:
        if path == closed / "pods":
            raise OSError(number, os.strerror(number), str(path))
        mkdir(path, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", make)
    if place == "systemd" and number != errno.ENOSPC:
        assert make_cgroup(cgroups, "/pods") == ("/pods",)
        return
    with pytest.raises(CgroupError, match=os.strerror(number)) as caught:
        make_cgroup(cgroups, "/pods")
    assert caught.value.errno == number


def test_users_in_containers_may_read_their_figures_whatever_the_umask(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    with_cpusets(tmp_path / "cpuset", trees.POD)
    before = os.umask(0o077)
    try:
        make_cgroup(cgroups, trees.POD)
    finally:
        os.umask(before)
    for directory in ("memory/pods", "memory/pods/a"):
        assert (tmp_path / directory).stat().st_mode & 0o777 == 0o755


def test_processes_stand_still_while_they_are_killed_and_not_longer(tmp_path: Path) -> None:
    """Those of a version 1 cgroup that was frozen before too, or they could not die."""
    cgroups = trees.v1(tmp_path)
    directory = tmp_path / "freezer/pods/a"
    trees.write(directory, {"freezer.state": "THAWED", "cgroup.procs": ""})
    trees.write(directory / "inner", {"freezer.state": "FROZEN", "cgroup.procs": ""})
    states: list[str] = []

    def hold(*_: object) -> tuple[()]:
        states.append((directory / "freezer.state").read_text())
        return ()

    kill_processes(cgroups, trees.POD, hold)
    assert states == ["FROZEN"]
    # A file of a test keeps the end of a longer value that was there.
    assert (directory / "freezer.state").read_text() == "THAWED"
    assert (directory / "inner/freezer.state").read_text() == "THAWED"


def test_a_hierarchy_between_that_lacks_a_cgroup_ends_no_removal(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    directories = [cgroups.hierarchies[0] / "pods", cgroups.hierarchies[-1] / "pods"]
    for directory in directories:
        directory.mkdir()
    remove_if_empty(cgroups, "/pods")
    assert not any(directory.exists() for directory in directories)


def test_a_cpu_cgroup_is_made_with_those_above_it(tmp_path: Path) -> None:
    cgroups = trees.v1(tmp_path)
    (tmp_path / "cpu/pods").mkdir()
    make_cpu_cgroup(cgroups, "/pods/a/b", 10_000, 100_000)
    assert (tmp_path / "cpu/pods/a/b/cpu.cfs_quota_us").read_text() == "10000"
    with pytest.raises(CgroupError, match="File exists"):
        make_cpu_cgroup(cgroups, "/pods/a/b/cpu.cfs_quota_us/c", 10_000, 100_000)


def test_a_process_enters_a_cpu_cgroup_that_is_there_alone(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="failed to enter cgroup /pods/a"):
        enter_cpu_cgroup(trees.v1(tmp_path), "/pods/a", 7)


def test_controllers_that_are_passed_down_already_are_not_written(tmp_path: Path) -> None:
    trees.write(
        tmp_path, {"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "memory cpu\n"}
    )
    make_cgroup(trees.v2(tmp_path), "/a")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "memory cpu\n"


def test_the_first_process_of_a_machine_is_one_of_them(tmp_path: Path) -> None:
    trees.write(tmp_path, {"cgroup.procs": "0\n1\n22\n"})
    assert sorted(cgroup_control.process_ids_below(tmp_path)) == [1, 22]
