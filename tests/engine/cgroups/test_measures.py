from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.cgroups.files import DeviceUsage
from moorage.engine.cgroups.usage import (
    PageUsage,
    Pressures,
    read_devices,
    read_huge_pages,
    read_pressures,
)
from tests import cgroup_trees as trees

SOME = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"


def test_waiting_is_known_on_version_two_only(tmp_path: Path) -> None:
    trees.write(tmp_path / "pods/a", {"cpu.pressure": SOME})
    pressures = read_pressures(trees.v2(tmp_path), trees.POD)
    assert pressures.cpu is not None
    assert pressures.cpu.some.total_ns == 7000
    assert (pressures.memory, pressures.io) == (None, None)
    assert read_pressures(trees.v1(tmp_path), trees.POD) == Pressures()


@pytest.mark.parametrize(
    ("events", "is_known"), [("populated 1\n", True), ("populated 0\n", False)]
)
def test_a_hybrids_unified_cgroup_counts_when_the_processes_are_in_it(
    tmp_path: Path, events: str, is_known: bool
) -> None:
    cgroups = trees.hybrid(tmp_path)
    trees.write(tmp_path / "unified/pods/a", {"io.pressure": SOME, "cgroup.events": events})
    assert (read_pressures(cgroups, trees.POD).io is not None) == is_known


def test_devices_on_each_version(tmp_path: Path) -> None:
    old, new = tmp_path / "1", tmp_path / "2"
    old.mkdir()
    expected = (DeviceUsage(8, 0, 1, 2, 3, 4),)
    trees.write(new / "pods/a", {"io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n"})
    assert read_devices(trees.v2(new), trees.POD) == expected
    assert read_devices(trees.v2(new, ("cpu",)), trees.POD) == ()
    cgroups = trees.v1(old)
    assert read_devices(cgroups, trees.POD) == ()
    trees.write(old / "blkio/pods/a", {
        "blkio.throttle.io_service_bytes": "8:0 Read 1\n8:0 Write 2\n",
        "blkio.throttle.io_serviced": "8:0 Read 3\n8:0 Write 4\n",
    })  # fmt: skip
    assert read_devices(cgroups, trees.POD) == expected


def test_huge_pages_by_size_wherever_they_are_counted(tmp_path: Path) -> None:
    files = {
        "hugetlb.2MB.usage_in_bytes": "4\n", "hugetlb.2MB.max_usage_in_bytes": "8\n",
        "hugetlb.2MB.rsvd.usage_in_bytes": "9\n", "hugetlb.2MB.limit_in_bytes": "9\n",
    }  # fmt: skip
    old = tmp_path / "1"
    old.mkdir()
    cgroups = trees.v1(old)
    trees.write(old / "hugetlb/pods/a", files)
    assert read_huge_pages(cgroups, trees.POD) == (PageUsage("2MB", 4, 8),)
    beside = tmp_path / "hybrid"
    beside.mkdir()
    mixed = trees.hybrid(beside)
    trees.write(beside / "unified/pods/a", {
        "hugetlb.1GB.current": "0\n", "hugetlb.1GB.rsvd.current": "5\n", "hugetlb.1GB.max": "max\n",
    })  # fmt: skip
    assert read_huge_pages(mixed, trees.POD) == (PageUsage("1GB", 0),)
    assert read_huge_pages(mixed, "/gone") == ()
