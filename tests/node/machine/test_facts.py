from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from moorage.linux.host import Kernel, parse_meminfo
from moorage.node.machine.facts import facts_of
from moorage.node.machine.pressure import Pressure, Supply, pressure_of, read_supply
from tests.linux.hosts import linux_host


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("armv7l", "arm"), ("i686", "386"), ("x", "x")],
)
def test_facts_are_the_hosts_with_the_disk_and_gos_name_of_the_architecture(
    tmp_path: Path, machine: str, architecture: str
) -> None:
    host = linux_host(kernel=Kernel("6.1.2", (6, 1), machine), thermal_paths=("/a",))
    facts = facts_of(host, tmp_path / "not" / "there")
    disk = os.statvfs(tmp_path)
    assert (facts.kernel, facts.architecture) == ("6.1.2", architecture)
    assert facts.disk_bytes == disk.f_blocks * disk.f_frsize
    assert facts.os_image == "Debian GNU/Linux 13 (trixie)"
    for name in (
        "cpu_count", "memory_bytes", "swap_bytes", "max_pids", "huge_pages", "machine_id",
        "system_uuid", "boot_id", "hostname", "address", "thermal_paths",
    ):  # fmt: skip
        assert getattr(facts, name) == getattr(host, name)


ENOUGH = {"memory_bytes": 1 << 30, "disk_share": 0.5, "inodes_share": 0.5, "pids_share": 0.5}


@pytest.mark.parametrize(
    ("less", "wanted"),
    [
        ({}, Pressure()),
        ({"memory_bytes": (100 << 20) - 1}, Pressure(memory=True)),
        ({"memory_bytes": 100 << 20}, Pressure()),
        ({"disk_share": 0.09}, Pressure(disk=True)),
        ({"inodes_share": 0.04}, Pressure(disk=True)),
        ({"pids_share": 0.04}, Pressure(pids=True)),
    ],
)
def test_pressure(less: dict[str, float], wanted: Pressure) -> None:
    assert pressure_of(Supply(**(ENOUGH | less))) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("blocks", "files", "wanted"),
    [((100, 25), (1000, 10), (0.25, 0.01)), ((0, 0), (0, 0), (1.0, 1.0))],
)
def test_the_supply_is_what_users_can_still_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: tuple[int, int],
    files: tuple[int, int], wanted: tuple[float, float],
) -> None:  # fmt: skip
    """Some file systems have no count of inodes; those never run short."""
    room = SimpleNamespace(f_blocks=blocks[0], f_bavail=blocks[1], f_bfree=90,
                           f_files=files[0], f_favail=files[1], f_ffree=900)  # fmt: skip
    asked: list[Path] = []

    def look(path: Path) -> SimpleNamespace:
        asked.append(path)
        return room

    monkeypatch.setattr(os, "statvfs", look)
    supply = read_supply(tmp_path)
    assert (supply.disk_share, supply.inodes_share) == wanted
    assert asked == [tmp_path]
    # As the kernel counts: neither all of it nor nothing.
    total = parse_meminfo(Path("/proc/meminfo").read_text())["MemTotal"]
    assert 0 < supply.memory_bytes < total
    assert 0 < supply.pids_share < 1
