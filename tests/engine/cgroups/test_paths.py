from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.cgroups import CgroupPath, container_cgroup
from moorage.engine.cgroups.control import parent_cgroup, slice_path
from moorage.engine.errors import InvalidError
from moorage.engine.handlers.definition import CgroupDriver

BURSTABLE = "/kubepods.slice/kubepods-burstable.slice"


@pytest.mark.parametrize(
    ("driver", "parent", "expected"),
    [
        (CgroupDriver.CGROUPFS, "/kubepods/podx", CgroupPath(
            "/kubepods/podx/c1", "/kubepods/podx", "/kubepods/podx/c1")),
        (CgroupDriver.CGROUPFS, "pods", CgroupPath("/pods/c1", "/pods", "/pods/c1")),
        (CgroupDriver.CGROUPFS, "//pods//a", CgroupPath("/pods/a/c1", "/pods/a", "/pods/a/c1")),
        (CgroupDriver.CGROUPFS, "/a-b.slice/", CgroupPath(
            "/a-b.slice/c1", "/a-b.slice", "/a-b.slice/c1")),
        (CgroupDriver.CGROUPFS, "", CgroupPath(
            "/moorage/c1", "/moorage", "/moorage/c1", is_parent_shared=True)),
        (CgroupDriver.SYSTEMD, f"{BURSTABLE}/kubepods-burstable-podx_y.slice", CgroupPath(
            f"{BURSTABLE}/kubepods-burstable-podx_y.slice/cri-moorage-c1.scope",
            f"{BURSTABLE}/kubepods-burstable-podx_y.slice",
            "kubepods-burstable-podx_y.slice:cri-moorage:c1")),
        (CgroupDriver.SYSTEMD, "pods.slice", CgroupPath(
            "/pods.slice/cri-moorage-c1.scope", "/pods.slice", "pods.slice:cri-moorage:c1")),
        (CgroupDriver.SYSTEMD, "", CgroupPath(
            "/system.slice/cri-moorage-c1.scope", "/system.slice", "system.slice:cri-moorage:c1",
            is_parent_shared=True)),
    ],
)  # fmt: skip
def test_where_a_container_is(driver: CgroupDriver, parent: str, expected: CgroupPath) -> None:
    assert container_cgroup(driver, parent, "c1") == expected


@pytest.mark.parametrize(
    ("driver", "parent", "advice"),
    [
        (CgroupDriver.CGROUPFS, "/", "use a path"),
        (CgroupDriver.CGROUPFS, "//", "use a path"),
        (CgroupDriver.CGROUPFS, "/pods/../..", "use a path"),
        (CgroupDriver.CGROUPFS, "a\0b", "use a path"),
        (CgroupDriver.SYSTEMD, "/kubepods/podx", "set the cgroupfs driver"),
        (CgroupDriver.SYSTEMD, "-.slice", "pods-a.slice"),
        (CgroupDriver.SYSTEMD, "a--b.slice", "pods-a.slice"),
        (CgroupDriver.SYSTEMD, "-a.slice", "pods-a.slice"),
        (CgroupDriver.SYSTEMD, ".slice", "pods-a.slice"),
        (CgroupDriver.SYSTEMD, "a.slice:b", "pods-a.slice"),
    ],
)
def test_parents_under_which_nothing_can_be(driver: CgroupDriver, parent: str, advice: str) -> None:
    with pytest.raises(InvalidError, match=advice):
        parent_cgroup(driver, parent)


@given(st.lists(st.from_regex(r"[a-z0-9_]+", fullmatch=True), min_size=1, max_size=5))
def test_a_slice_is_below_the_slices_that_its_name_begins_with(parts: list[str]) -> None:
    directories = slice_path("-".join(parts) + ".slice").split("/")[1:]
    assert len(directories) == len(parts)
    for above, below in itertools.pairwise(directories):
        assert below.startswith(above.removesuffix(".slice") + "-")
