from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from moorage.node.machine import facts
from moorage.node.machine.facts import os_image, parse_meminfo
from moorage.node.machine.pressure import Pressure, Supply, pressure_of, read_supply


def test_memory() -> None:
    text = "MemTotal:       2048 kB\nMemAvailable:   1024 kB\nHugePages_Total:       3\nOdd\n"
    assert parse_meminfo(text) == {
        "MemTotal": 2 << 20,
        "MemAvailable": 1 << 20,
        "HugePages_Total": 3,
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            'NAME=x\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
            "Debian GNU/Linux 12 (bookworm)",
        ),
        ("PRETTY_NAME=Plain\n", "Plain"),
        ("", "Linux"),
    ],
)
def test_the_systems_name(text: str, wanted: str) -> None:
    assert os_image(text) == wanted


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


class Files:
    """A root directory in place of the machine's."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, text: str) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


def test_huge_pages_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_HUGE_PAGES", tmp_path / "hugepages")
    assert facts._huge_pages() == {}
    files = Files(tmp_path / "hugepages")
    files.put("hugepages-2048kB/nr_hugepages", "3\n")
    files.put("hugepages-1048576kB/nr_hugepages", "1\n")
    files.put("hugepages-64kB/nr_hugepages", "5\n")
    files.put("hugepages-3072kB/other", "")
    files.put("other/nr_hugepages", "7\n")
    assert facts._huge_pages() == {
        "hugepages-2Mi": 6 << 20,
        "hugepages-1Gi": 1 << 30,
        "hugepages-64Ki": 5 << 16,
        "hugepages-3Mi": 0,
    }


def test_the_first_file_with_something_in_it_counts(tmp_path: Path) -> None:
    files = Files(tmp_path)
    empty, two = files.put("empty", " \n\x00"), files.put("two", "\x00first \nsecond\n")
    assert facts._first_line(tmp_path / "none", empty, two) == "first "
    assert facts._first_line(tmp_path / "none", empty) == ""


def test_what_is_read_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(tmp_path)
    monkeypatch.setattr(facts, "_MACHINE_ID", (files.put("id", "m1\n"),))
    monkeypatch.setattr(facts, "_SYSTEM_UUID", (files.put("uuid", "U-1\n"),))
    monkeypatch.setattr(facts, "_HUGE_PAGES", tmp_path / "none")
    monkeypatch.setattr(facts, "_THROTTLES", tmp_path / "cpu")
    for name in ("cpu1", "cpu0", "cpufreq"):
        (tmp_path / "cpu" / name / "thermal_throttle").mkdir(parents=True)
    name = ("Linux", "Node-A", "6.1.2", "#1", "x86_64")
    monkeypatch.setattr(facts.platform, "uname", lambda: platform.uname_result(*name))
    monkeypatch.setattr(facts, "own_address", lambda: "192.0.2.9")
    monkeypatch.setattr(facts.os, "cpu_count", lambda: None)
    found = facts.read_facts(tmp_path / "not" / "there")
    disk = os.statvfs(tmp_path)
    assert (found.cpu_count, found.disk_bytes) == (1, disk.f_blocks * disk.f_frsize)
    memory = parse_meminfo(Path("/proc/meminfo").read_text())
    assert (found.memory_bytes, found.swap_bytes) == (memory["MemTotal"], memory["SwapTotal"])
    assert (found.machine_id, found.system_uuid, found.huge_pages) == ("m1", "U-1", {})
    assert found.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (found.kernel, found.architecture, found.hostname) == ("6.1.2", "amd64", "node-a")
    assert found.address == "192.0.2.9"
    assert found.os_image == os_image(Path("/etc/os-release").read_text())
    assert found.max_pids > 1000
    assert found.thermal_paths == tuple(
        f"{tmp_path}/cpu/{each}/thermal_throttle" for each in ("cpu0", "cpu1")
    )
    monkeypatch.setattr(facts.os, "cpu_count", lambda: 6)
    for machine, wanted in (("aarch64", "arm64"), ("armv7l", "arm"), ("i686", "386"), ("x", "x")):
        changed = platform.uname_result(*name[:4], machine)
        monkeypatch.setattr(facts.platform, "uname", lambda changed=changed: changed)
        again = facts.read_facts(tmp_path)
        assert (again.architecture, again.cpu_count) == (wanted, 6)


class Probe:
    """A socket of a machine that reaches what is in `routes`."""

    routes: ClassVar[dict[str, str]] = {}

    def __init__(self, family: int, kind: int) -> None:
        assert kind == socket.SOCK_DGRAM
        self.family = family
        self.name = ""

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, address: tuple[str, int]) -> None:
        wanted = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        assert self.family == wanted
        if address[0] not in self.routes:
            raise OSError("no route")
        self.name = self.routes[address[0]]

    def getsockname(self) -> tuple[str, int]:
        return (self.name, 5)


@pytest.mark.parametrize(
    ("routes", "wanted"),
    [
        ({"192.0.2.1": "10.0.0.1", "2001:db8::1": "fd00::1"}, "10.0.0.1"),
        ({"2001:db8::1": "fd00::1"}, "fd00::1"),
        ({}, "127.0.0.1"),
    ],
)
def test_the_address_towards_others(
    monkeypatch: pytest.MonkeyPatch, routes: dict[str, str], wanted: str
) -> None:
    monkeypatch.setattr(Probe, "routes", routes)
    monkeypatch.setattr(facts.socket, "socket", Probe)
    assert facts.own_address() == wanted


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
    found = read_supply(tmp_path)
    assert (found.disk_share, found.inodes_share) == wanted
    assert asked == [tmp_path]
    # As the kernel counts: neither all of it nor nothing.
    total = parse_meminfo(Path("/proc/meminfo").read_text())["MemTotal"]
    assert 0 < found.memory_bytes < total
    assert 0 < found.pids_share < 1
