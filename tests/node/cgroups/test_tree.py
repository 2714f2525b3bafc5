"""The tree on ordinary directories: which files are written where, for both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.cgroups.tree import CgroupError, CgroupTree
from moorage.node.cgroups.values import UNLIMITED, CgroupValues

VALUES = CgroupValues(shares=1024, memory_bytes=1 << 20)


def v1(root: Path) -> CgroupTree:
    points = {"cpu": root / "cpu", "memory": root / "memory", "cpuset": root / "cpuset"}
    for point in (*points.values(), root / "systemd"):
        point.mkdir()
    for file, content in (("cpuset.cpus", "0-3"), ("cpuset.mems", "0")):
        (points["cpuset"] / file).write_text(f"{content}\n")
    hierarchies = (*points.values(), root / "systemd")
    return CgroupTree(Cgroups(Layout.V1, points, hierarchies=hierarchies), "/moorage")


def v2(root: Path) -> CgroupTree:
    return CgroupTree(Cgroups(Layout.V2, unified=root, hierarchies=(root,)), "/moorage/")


def test_engine_receives_an_absolute_path(tmp_path: Path) -> None:
    assert v2(tmp_path).path("kubepods/podx") == "/moorage/kubepods/podx"


def test_version_one_is_written_in_every_hierarchy(tmp_path: Path) -> None:
    tree = v1(tmp_path)
    # The kernel makes a cpuset's files; here they are made beforehand.
    place = tmp_path / "cpuset"
    for part in ("moorage", "kubepods"):
        place = place / part
        place.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            (place / file).write_text("\n")
    tree.ensure("kubepods", VALUES)
    assert (tmp_path / "cpu/moorage/kubepods/cpu.shares").read_text() == "1024"
    assert (tmp_path / "memory/moorage/kubepods/memory.limit_in_bytes").read_text() == "1048576"
    assert (place / "cpuset.cpus").read_text() == "0-3"
    assert tree.exists("kubepods")
    assert not tree.exists("kubepods/burstable")


def test_limits_are_read_from_both_versions(tmp_path: Path) -> None:
    first, second = tmp_path / "v1", tmp_path / "v2"
    first.mkdir()
    tree = v1(first)
    assert tree.read("podx") is None
    for file, content in (("cpu/moorage/podx/cpu.cfs_quota_us", "3000\n"),
                          ("memory/moorage/podx/memory.limit_in_bytes", "1048576\n"),
                          ("memory/moorage/podx/memory.usage_in_bytes", "4096\n")):  # fmt: skip
        (first / file).parent.mkdir(parents=True, exist_ok=True)
        (first / file).write_text(content)
    assert tree.read("podx") == CgroupValues(quota_us=3000, memory_bytes=1 << 20)
    assert tree.memory_usage_bytes("podx") == 4096
    pod = second / "moorage" / "podx"
    pod.mkdir(parents=True)
    (pod / "cpu.max").write_text("max 100000\n")
    (pod / "memory.max").write_text("max\n")
    assert v2(second).read("podx") == CgroupValues(quota_us=UNLIMITED, memory_bytes=UNLIMITED)
    assert v2(second).memory_usage_bytes("podx") is None


def with_controllers(place: Path, names: str, enabled: str = "") -> None:
    place.mkdir(exist_ok=True)
    (place / "cgroup.controllers").write_text(names)
    (place / "cgroup.subtree_control").write_text(enabled)


def test_version_two_passes_every_controller_on(tmp_path: Path) -> None:
    with_controllers(tmp_path, "cpu memory pids", "cpu")
    with_controllers(tmp_path / "moorage", "cpu memory pids")
    with_controllers(tmp_path / "moorage" / "kubepods", "cpu")
    v2(tmp_path).ensure("kubepods", VALUES)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (tmp_path / "moorage/cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (tmp_path / "moorage/kubepods/cpu.weight").read_text() == "39"
    # A controller that is not there is passed over.
    assert not (tmp_path / "moorage/kubepods/memory.max").exists()


PAGES = CgroupValues(huge_pages={"2MB": 4 << 20})


@pytest.mark.parametrize("values", [PAGES, CgroupValues(huge_pages={}), CgroupValues()])
def test_huge_pages_that_were_not_requested_are_not_to_be_had(
    tmp_path: Path, values: CgroupValues
) -> None:
    with_controllers(tmp_path, "hugetlb", "hugetlb")
    with_controllers(tmp_path / "moorage", "hugetlb", "hugetlb")
    place = tmp_path / "moorage" / "kubepods"
    with_controllers(place, "hugetlb")
    for size in ("2MB", "1GB"):
        (place / f"hugetlb.{size}.max").write_text("max")
        (place / f"hugetlb.{size}.rsvd.max").write_text("max")
        (place / f"hugetlb.{size}.current").write_text("0")
    v2(tmp_path).ensure("kubepods", values)
    limits = {size: (place / f"hugetlb.{size}.max").read_text() for size in ("2MB", "1GB")}
    if values.huge_pages is None:
        assert limits == {"2MB": "max", "1GB": "max"}
    else:
        assert limits == {"2MB": str(values.huge_pages.get("2MB", 0)), "1GB": "0"}
    assert (place / "hugetlb.1GB.rsvd.max").read_text() == "max"


def test_failed_cgroup_creation_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "moorage").write_text("a file")
    with_controllers(tmp_path, "cpu")
    with pytest.raises(CgroupError) as caught:
        v2(tmp_path).ensure("kubepods", VALUES)
    assert "failed to create cgroup /moorage/kubepods" in str(caught.value)


def test_removal_spans_all_hierarchies(tmp_path: Path) -> None:
    tree = v1(tmp_path)
    places = [tmp_path / f"{name}/moorage/kubepods/poda" for name in ("cpu", "systemd")]
    for place in places:
        (place / "inner").mkdir(parents=True)
    tree.remove("kubepods/poda")
    assert not any(place.exists() for place in places)
    tree.remove("kubepods/gone")


def test_a_cgroup_that_stays_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "moorage" / "kubepods"
    place.mkdir(parents=True)
    (place / "held").write_text("")
    with pytest.raises(CgroupError, match="failed to remove cgroup /moorage/kubepods"):
        v2(tmp_path).remove("kubepods")
