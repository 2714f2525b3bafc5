"""Host facts: parsing, and each fact's file."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from moorage.linux import host
from moorage.linux.capabilities import NAMES
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.host import parse_last_capability, parse_meminfo, read_host


def test_memory() -> None:
    text = "MemTotal:       2048 kB\nMemAvailable:   1024 kB\nHugePages_Total:       3\nOdd\n"
    text += "None: none kB\n"
    assert parse_meminfo(text) == {
        "MemTotal": 2 << 20,
        "MemAvailable": 1 << 20,
        "HugePages_Total": 3,
    }


@pytest.mark.parametrize(
    ("release", "name", "is_debian_like"),
    [
        ({"ID": "debian", "NAME": "Debian", "PRETTY_NAME": "Debian 13"}, "Debian 13", True),
        ({"ID": "mint", "ID_LIKE": "ubuntu debian", "NAME": "Mint"}, "Mint", True),
        ({"ID": "alpine", "NAME": "Alpine Linux"}, "Alpine Linux", False),
        (None, platform.system(), False),
    ],
)
def test_systems(
    monkeypatch: pytest.MonkeyPatch, release: dict[str, str] | None, name: str, is_debian_like: bool
) -> None:
    def read() -> dict[str, str]:
        if release is None:
            raise OSError("no os-release")
        return release

    monkeypatch.setattr(platform, "freedesktop_os_release", read)
    system = host._system()
    assert (system.name, system.is_debian_like) == (name, is_debian_like)


class Files:
    """A root directory in place of the host's."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, text: str) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


def test_huge_pages_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_HUGE_PAGES", tmp_path / "hugepages")
    assert host._huge_pages() == {}
    files = Files(tmp_path / "hugepages")
    files.put("hugepages-2048kB/nr_hugepages", "3\n")
    files.put("hugepages-1048576kB/nr_hugepages", "1\n")
    files.put("hugepages-64kB/nr_hugepages", "5\n")
    files.put("hugepages-3072kB/other", "")
    files.put("other/nr_hugepages", "7\n")
    assert host._huge_pages() == {
        "hugepages-2Mi": 6 << 20,
        "hugepages-1Gi": 1 << 30,
        "hugepages-64Ki": 5 << 16,
        "hugepages-3Mi": 0,
    }


def test_the_first_file_with_something_in_it_counts(tmp_path: Path) -> None:
    files = Files(tmp_path)
    empty, two = files.put("empty", " \n\x00"), files.put("two", "\x00first \nsecond\n")
    assert host._first_line(tmp_path / "none", empty, two) == "first "
    assert host._first_line(tmp_path / "none", empty) == ""


def test_an_older_kernel_knows_fewer_capabilities() -> None:
    assert parse_last_capability("37") == frozenset(NAMES[:38])
    assert parse_last_capability("") == frozenset(NAMES)


@pytest.mark.parametrize("layout", [Layout.V1, Layout.HYBRID])
def test_swap_is_accounted_where_the_file_is(tmp_path: Path, layout: Layout) -> None:
    (tmp_path / "u/a").mkdir(parents=True)
    (tmp_path / "u/a/memory.swap.max").touch()
    (tmp_path / "memory").mkdir()
    cgroups = Cgroups(layout, {"memory": tmp_path / "memory"}, tmp_path / "u")
    assert not host.has_swap_accounting(cgroups)
    (tmp_path / "memory/memory.memsw.limit_in_bytes").touch()
    assert host.has_swap_accounting(cgroups)
    assert not host.has_swap_accounting(Cgroups(layout, {}, tmp_path / "u"))


def test_each_fact_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(tmp_path)
    cgroups = Cgroups(Layout.V2, {}, tmp_path, ("hugetlb",))
    (tmp_path / "a").mkdir()
    (tmp_path / "a/memory.swap.max").touch()
    monkeypatch.setattr(host, "_MACHINE_ID", (files.put("id", "m1\n"),))
    monkeypatch.setattr(host, "_SYSTEM_UUID", (files.put("uuid", "U-1\n"),))
    monkeypatch.setattr(host, "_APP_ARMOR", files.put("armor", "Y\n"))
    monkeypatch.setattr(host, "_LAST_CAPABILITY", files.put("last", "5\n"))
    monkeypatch.setattr(host, "_SELINUX", tmp_path / "none")
    monkeypatch.setattr(host, "_SYSTEMD", tmp_path)
    monkeypatch.setattr(host, "_HUGE_PAGES", tmp_path / "none")
    monkeypatch.setattr(host, "_THROTTLES", tmp_path / "cpu")
    for name in ("cpu1", "cpu0", "cpufreq"):
        (tmp_path / "cpu" / name / "thermal_throttle").mkdir(parents=True)
    uname = os.uname_result(("Linux", "Node-A", "6.1.2", "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    monkeypatch.setattr(host, "own_address", lambda: "192.0.2.9")
    monkeypatch.setattr(host, "current_cgroups", lambda: cgroups)
    host_facts = read_host()
    memory = parse_meminfo(Path("/proc/meminfo").read_text())
    assert (host_facts.memory_bytes, host_facts.swap_bytes) == (
        memory["MemTotal"],
        memory["SwapTotal"],
    )
    assert (host_facts.machine_id, host_facts.system_uuid, host_facts.huge_pages) == (
        "m1",
        "U-1",
        {},
    )
    assert host_facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (host_facts.kernel.release, host_facts.kernel.version) == ("6.1.2", (6, 1))
    assert (host_facts.kernel.machine, host_facts.hostname, host_facts.cpu_count) == (
        "x86_64",
        "node-a",
        1,
    )
    assert (host_facts.address, host_facts.cgroups) == ("192.0.2.9", cgroups)
    assert (host_facts.has_app_armor, host_facts.has_selinux, host_facts.has_systemd) == (
        True,
        False,
        True,
    )
    assert host_facts.has_swap_accounting
    assert host_facts.known_capabilities == frozenset(NAMES[:6])
    status = Path("/proc/self/status").read_text()
    assert host_facts.has_seccomp == ("\nSeccomp:" in status)
    assert host_facts.is_root == (os.geteuid() == 0)
    assert host_facts.max_pids > 1000
    assert host_facts.thermal_paths == tuple(
        f"{tmp_path}/cpu/{name}/thermal_throttle" for name in ("cpu0", "cpu1")
    )
    files.put("armor", "N\n")
    (tmp_path / "a/memory.swap.max").unlink()
    assert not read_host().has_app_armor
    assert not read_host().has_swap_accounting


def test_this_host_is_described() -> None:
    host_facts = read_host()
    assert host_facts.kernel.version > (3, 0)
    assert host_facts.capabilities <= host_facts.known_capabilities
    assert host_facts.kernel.machine


def test_the_files_that_name_the_machine() -> None:
    assert [[str(path) for path in paths] for paths in (host._MACHINE_ID, host._SYSTEM_UUID)] == [
        ["/etc/machine-id", "/var/lib/dbus/machine-id"],
        ["/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid"],
    ]


@pytest.mark.parametrize(
    ("label", "is_in_effect"),
    [
        ("system_u:system_r:container_runtime_t:s0\0", True),
        # The kernel has SELinux, but no policy: runc refuses labels then.
        ("kernel\0", False),
        ("kernel\n", False),
    ],
)
def test_selinux_without_a_policy_is_not_in_effect(
    label: str, is_in_effect: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_SELINUX", tmp_path / "enforce")
    monkeypatch.setattr(host, "_LABEL", tmp_path / "current")
    (tmp_path / "current").write_text(label)
    assert not host.has_selinux()
    (tmp_path / "enforce").write_text("0")
    assert host.has_selinux() == is_in_effect
