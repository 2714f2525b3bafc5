from __future__ import annotations

from pathlib import Path

from moorage.node.cgroups.layout import CgroupLayout, layout_of

ROOT = "20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
V2 = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "30 20 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    "31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 20 0:28 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory\n"
    "33 20 0:29 / /sys/fs/cgroup/systemd rw shared:12 - cgroup cgroup rw,xattr,name=systemd\n"
)
CGROUP = Path("/sys/fs/cgroup")


def test_version_two_alone() -> None:
    found = layout_of(ROOT + V2)
    assert found == CgroupLayout({}, (CGROUP,), unified=CGROUP)
    assert layout_of("").unified is None


def test_a_hybrid_keeps_its_controllers_in_version_one() -> None:
    found = layout_of(ROOT + HYBRID)
    assert found.unified is None
    assert found.controllers == {
        "cpu": CGROUP / "cpu,cpuacct",
        "cpuacct": CGROUP / "cpu,cpuacct",
        "memory": CGROUP / "memory",
    }


def test_every_hierarchy_may_hold_processes() -> None:
    names = [path.name for path in layout_of(HYBRID).hierarchies]
    assert names == ["unified", "cpu,cpuacct", "memory", "systemd"]


def test_lines_that_are_none_are_passed_over() -> None:
    assert layout_of("broken\n\n30 20 - cgroup\n" + V2).unified == CGROUP
