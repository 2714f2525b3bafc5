from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.machine.pressure import Gauges, NodePressure, memory_seen, pids_seen
from moorage.node.pressure.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    IMAGEFS_AVAILABLE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    Observation,
)

V1_STAT = "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20\n"
V2_STAT = "inactive_file 30\nactive_file 20\n"


def gauges(root: Path, layout: Layout) -> Gauges:
    memory = root / "memory" / "moorage" / "kubepods"
    memory.mkdir(parents=True)
    accounting = root / "cpuacct" / "moorage" / "kubepods"
    accounting.mkdir(parents=True)
    files = {
        memory / "memory.usage_in_bytes": "150",
        memory / "memory.current": "150",
        memory / "memory.stat": V2_STAT if layout is Layout.V2 else V1_STAT,
        memory / "cpu.stat": "usage_usec 1\n",
        accounting / "cpuacct.usage": "1",
    }
    for file, text in files.items():
        file.write_text(text)
    if layout is Layout.V2:
        cgroups = Cgroups(layout, unified=root / "memory")
    else:
        cgroups = Cgroups(layout, {name: root / name for name in ("memory", "cpuacct")})
    tree = CgroupTree(cgroups, "/moorage")
    return Gauges(disk=root, tree=tree, max_pids=1 << 22, pods_memory_bytes=1000)


@pytest.mark.parametrize("layout", [Layout.V1, Layout.HYBRID, Layout.V2])
def test_memory_of_all_pods_leaves_out_what_the_kernel_can_reclaim(
    tmp_path: Path, layout: Layout
) -> None:
    seen = gauges(tmp_path, layout).read(None)
    assert seen[ALLOCATABLE_MEMORY_AVAILABLE] == Observation(900, 1000)


def test_this_host_is_measured(tmp_path: Path) -> None:
    meter = gauges(tmp_path, Layout.V2)
    seen = meter.read(tmp_path)
    for signal in (MEMORY_AVAILABLE, NODEFS_AVAILABLE, PID_AVAILABLE):
        assert 0 < seen[signal].available < seen[signal].capacity
    assert seen[IMAGEFS_AVAILABLE].capacity == seen[NODEFS_AVAILABLE].capacity
    assert not meter.has_image_disk(tmp_path)
    assert meter.has_image_disk(Path("/proc"))
    assert not meter.has_image_disk(None)
    assert not meter.has_image_disk(tmp_path / "gone")
    assert IMAGEFS_AVAILABLE not in meter.read(tmp_path / "gone")


@pytest.mark.parametrize(
    ("blocks", "files", "wanted"),
    [
        ((100, 25), (1000, 10), {NODEFS_AVAILABLE: (100, 400), NODEFS_INODES_FREE: (10, 1000)}),
        ((0, 0), (0, 0), {}),
    ],
)
def test_the_supply_of_a_disk_is_what_users_can_still_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks: tuple[int, int],
    files: tuple[int, int],
    wanted: dict[str, tuple[int, int]],
) -> None:
    """Some file systems have no count of inodes; those never run short."""
    meter = gauges(tmp_path, Layout.V2)
    room = SimpleNamespace(
        f_frsize=4, f_blocks=blocks[0], f_bavail=blocks[1], f_bfree=90,
        f_files=files[0], f_favail=files[1], f_ffree=900,
    )  # fmt: skip
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    seen = meter.read(None)
    disks = {name: seen[name] for name in (NODEFS_AVAILABLE, NODEFS_INODES_FREE) if name in seen}
    assert disks == {name: Observation(*pair) for name, pair in wanted.items()}


def test_memory_is_what_the_kernel_says_is_available() -> None:
    text = "MemTotal: 100 kB\nMemFree: 10 kB\n"
    assert memory_seen(text) == Observation(10240, 102400)
    assert memory_seen(text + "MemAvailable: 40 kB\n") == Observation(40960, 102400)


def test_tasks_are_counted_against_the_limit_of_process_ids() -> None:
    assert pids_seen("0.1 0.1 0.1 2/234 99", 1000) == Observation(766, 1000)
    assert pids_seen("0.1 0.1 0.1 2/2340 99", 1000) == Observation(0, 1000)


def test_listeners_are_called_for_a_change_alone() -> None:
    pressure, calls = NodePressure(), []
    pressure.add_listener(lambda: calls.append(pressure.conditions))
    for conditions in ((), ("DiskPressure",), ("DiskPressure",), ()):
        pressure.update(conditions)
    assert calls == [("DiskPressure",), ()]
