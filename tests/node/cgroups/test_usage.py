from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux.cgroups import Cgroups, Layout, guest_cgroups, guests_outside
from moorage.node.cgroups.tree import CgroupUsage, pod_usage, process_count
from tests import cgroup_trees


@pytest.mark.parametrize(
    "cgroups",
    [
        Cgroups(Layout.V1, {"pids": Path("pids")}),
        Cgroups(Layout.HYBRID, {"pids": Path("pids")}, unified=Path("other")),
        Cgroups(Layout.HYBRID, {}, unified=Path("pids"), v2=("pids",)),
        Cgroups(Layout.V2, unified=Path("pids"), v2=("pids",)),
    ],
)
def test_processes_are_counted_where_the_controller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroups: Cgroups
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "pids" / "a"
    directory.mkdir(parents=True)
    (directory / "pids.current").write_text("7\n")
    assert process_count(cgroups, "/a") == 7
    assert process_count(cgroups, "/gone") is None


def test_without_the_controller_nothing_is_counted() -> None:
    assert process_count(Cgroups(Layout.V1), "/a") is None


def test_a_pods_virtual_machine_outside_of_its_cgroup_is_its_usage(tmp_path: Path) -> None:
    cgroups = cgroup_trees.v2(tmp_path)
    for place, size in (("pods/a", 100), ("kata_overhead/s1", 1000), ("kata_overhead/s2", 5)):
        cgroup_trees.write(
            tmp_path / place,
            {"memory.current": str(size), "memory.stat": "inactive_file 1\nactive_file 2\n",
             "cpu.stat": f"usage_usec {size}\n"},
        )  # fmt: skip
    assert guests_outside(cgroups) == {"s1", "s2"}
    assert pod_usage(cgroups, "/pods/a", ["s1", "absent"]) == CgroupUsage(
        1_100_000, 1100, 1098, 1094
    )
    assert pod_usage(cgroups, "/pods/absent", ["s1"]) is None
    assert guest_cgroups("/pods/a", "s1") == ("/kata_overhead/s1", "/pods/a/kata_s1")
    assert not guests_outside(Cgroups(Layout.ABSENT))
