"""Layouts, from mount tables of machines of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux.cgroups import Cgroups, Layout, cgroups_of, current_cgroups, unified_mount
from moorage.linux.mounts import parse_mounts

UNIFIED = "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate"
BESIDE = "31 25 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw"
ALL_V2 = "cpuset cpu io memory hugetlb pids rdma misc"
NAMED = "32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd"


def v1(*controllers: str) -> str:
    joined = ",".join(controllers)
    return f"40 25 0:29 / /sys/fs/cgroup/{joined} rw shared:11 - cgroup cgroup rw,{joined}"


FULL_V1 = (
    NAMED,
    v1("cpu", "cpuacct"),
    *map(v1, ("cpuset", "memory", "pids", "devices", "freezer", "blkio")),
)


def seen(*lines: str, controllers: str = "") -> Cgroups:
    return cgroups_of(parse_mounts("\n".join(lines)), controllers)


@pytest.mark.parametrize(
    ("lines", "controllers", "layout", "missing", "is_apart"),
    [
        ((UNIFIED,), ALL_V2, Layout.V2, (), False),
        ((UNIFIED,), "cpuset cpu memory", Layout.V2, ("pids",), False),
        ((UNIFIED,), "cpu io memory pids", Layout.V2, (), False),
        (FULL_V1, "", Layout.V1, (), False),
        ((*FULL_V1, BESIDE), "", Layout.HYBRID, (), False),
        ((*FULL_V1, BESIDE), "hugetlb", Layout.HYBRID, (), True),
        ((*FULL_V1, v1("hugetlb"), BESIDE), "", Layout.HYBRID, (), False),
        ((NAMED, v1("memory")), "", Layout.V1,
         ("cpu", "cpuacct", "cpuset", "pids", "devices", "freezer"), False),
        ((NAMED, UNIFIED), ALL_V2, Layout.V2, (), False),
        ((), "", Layout.ABSENT,
         ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer"), False),
    ],
    ids=["v2", "v2 without pids", "v2 without cpuset", "v1", "hybrid", "hugetlb apart",
         "hugetlb joined", "poor v1", "v2 with a named hierarchy", "none"],
)  # fmt: skip
def test_layouts(
    lines: tuple[str, ...], controllers: str, layout: Layout, missing: tuple[str, ...],
    is_apart: bool,
) -> None:  # fmt: skip
    cgroups = seen(*lines, controllers=controllers)
    assert (cgroups.layout, cgroups.missing, cgroups.is_hugetlb_apart) == (
        layout,
        missing,
        is_apart,
    )


def test_controllers_that_share_a_hierarchy_share_its_mount() -> None:
    cgroups = seen(*FULL_V1)
    assert cgroups.v1["cpu"] == cgroups.v1["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert Path("/sys/fs/cgroup/systemd") in cgroups.hierarchies


def test_the_first_of_several_mounts_of_a_hierarchy_counts() -> None:
    again = UNIFIED.replace("/sys/fs/cgroup ", "/run/other ")
    assert seen(UNIFIED, again, controllers=ALL_V2).unified == Path("/sys/fs/cgroup")
    assert unified_mount(parse_mounts("\n".join((UNIFIED, again)))) == Path("/sys/fs/cgroup")


def test_controllers_without_a_unified_mount_are_nobodys() -> None:
    assert seen(*FULL_V1, controllers=ALL_V2).v2 == ()


def test_a_controller_is_in_one_hierarchy_or_in_none() -> None:
    cgroups = seen(*FULL_V1, BESIDE, controllers="hugetlb")
    assert cgroups.mount_of("memory") == Path("/sys/fs/cgroup/memory")
    assert cgroups.mount_of("hugetlb") == Path("/sys/fs/cgroup/unified")
    assert cgroups.mount_of("net_cls") is None


def test_a_cgroup_has_a_directory_in_every_hierarchy() -> None:
    cgroups = seen(NAMED, v1("memory"), BESIDE)
    assert [str(directory) for directory in cgroups.directories("/pods/a")] == [
        f"/sys/fs/cgroup/{name}/pods/a" for name in ("systemd", "memory", "unified")
    ]


@pytest.mark.parametrize("path", ["", "/", "pods/a", "/pods/../..", "//"])
def test_the_root_is_nobodys_cgroup(path: str) -> None:
    with pytest.raises(ValueError, match="below the root"):
        seen(UNIFIED).directories(path)


def test_this_machine_has_what_its_mounts_say() -> None:
    cgroups = current_cgroups()
    assert set(cgroups.v1.values()) <= set(cgroups.hierarchies)
    assert all(point.is_dir() for point in cgroups.hierarchies)


@pytest.mark.parametrize("controller", [
    "cpu", "cpuacct", "cpuset", "memory", "pids", "blkio", "devices", "freezer", "hugetlb",
    "net_cls", "net_prio", "perf_event",
])  # fmt: skip
def test_each_controller_of_version_one_is_found_where_it_is_mounted(controller: str) -> None:
    cgroups = seen(v1(controller))
    assert cgroups.v1 == {controller: Path(f"/sys/fs/cgroup/{controller}")}
    assert cgroups.layout is Layout.V1
