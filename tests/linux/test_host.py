"""Host facts: parsing, and each fact's file."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from moorage.linux.address import own_address
from moorage.linux.capabilities import NAMES
from moorage.linux.cgroups import Cgroups, Layout, current_cgroups
from moorage.linux.host import (
    Host,
    Kernel,
    has_swap_accounting,
    kernel_version,
    parse_last_capability,
    parse_meminfo,
    read_host,
    system_of,
)
from tests.descriptors import open_descriptors


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
        ({}, platform.system(), False),
    ],
)
def test_systems(release: dict[str, str], name: str, is_debian_like: bool) -> None:
    system = system_of(release)
    assert (system.name, system.is_debian_like) == (name, is_debian_like)


class FakeRoot:
    """A root directory with files in place of the host's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for file in (
            "meminfo", "self/status", "sys/kernel/pid_max", "sys/kernel/threads-max",
            "sys/kernel/random/boot_id",
        ):  # fmt: skip
            self.put(f"proc/{file}", Path("/proc", file).read_text())

    def put(self, path: str, text: str = "") -> None:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self) -> Host:
        return read_host(self.path)


@pytest.fixture
def root(tmp_path: Path) -> FakeRoot:
    return FakeRoot(tmp_path)


def test_huge_pages_by_their_size(root: FakeRoot) -> None:
    assert root.read().huge_pages == {}
    for path, text in {
        "hugepages-2048kB/nr_hugepages": "3\n", "hugepages-1048576kB/nr_hugepages": "1\n",
        "hugepages-64kB/nr_hugepages": "5\n", "hugepages-3072kB/other": "",
        "other/nr_hugepages": "7\n",
    }.items():  # fmt: skip
        root.put(f"sys/kernel/mm/hugepages/{path}", text)
    assert root.read().huge_pages == {
        "hugepages-2Mi": 6 << 20,
        "hugepages-1Gi": 1 << 30,
        "hugepages-64Ki": 5 << 16,
        "hugepages-3Mi": 0,
    }


def test_the_first_file_that_names_the_host_counts(root: FakeRoot) -> None:
    assert (root.read().machine_id, root.read().system_uuid) == ("", "")
    root.put("var/lib/dbus/machine-id", "\x00second \nline\n")
    root.put("proc/device-tree/vm,uuid", "U-2\x00")
    root.put("etc/machine-id", " \n\x00")
    assert (root.read().machine_id, root.read().system_uuid) == ("second ", "U-2")
    root.put("etc/machine-id", "first")
    root.put("sys/class/dmi/id/product_uuid", "U-1\n")
    assert (root.read().machine_id, root.read().system_uuid) == ("first", "U-1")


def test_an_older_kernel_knows_fewer_capabilities() -> None:
    assert parse_last_capability("37") == frozenset(NAMES[:38])
    assert parse_last_capability("") == frozenset(NAMES)


@pytest.mark.parametrize("layout", [Layout.V1, Layout.HYBRID])
def test_swap_is_accounted_where_the_file_is(tmp_path: Path, layout: Layout) -> None:
    (tmp_path / "u/a").mkdir(parents=True)
    (tmp_path / "u/a/memory.swap.max").touch()
    (tmp_path / "memory").mkdir()
    cgroups = Cgroups(layout, {"memory": tmp_path / "memory"}, tmp_path / "u")
    assert not has_swap_accounting(cgroups)
    (tmp_path / "memory/memory.memsw.limit_in_bytes").touch()
    assert has_swap_accounting(cgroups)
    assert not has_swap_accounting(Cgroups(layout, {}, tmp_path / "u"))


def test_in_version_2_any_group_but_the_root_shows_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "memory.swap.max").touch()
    cgroups = Cgroups(Layout.V2, {}, tmp_path, ("hugetlb",))
    assert not has_swap_accounting(cgroups)
    (tmp_path / "a/memory.swap.max").touch()
    assert has_swap_accounting(cgroups)


def test_each_fact_has_its_file(root: FakeRoot) -> None:
    absent = root.read()
    assert (absent.has_app_armor, absent.has_systemd, absent.has_kvm) == (False, False, False)
    assert absent.known_capabilities == frozenset(NAMES)
    root.put("sys/module/apparmor/parameters/enabled", "Y\n")
    root.put("proc/sys/kernel/cap_last_cap", "5\n")
    root.put("proc/meminfo", "MemTotal: 2 kB\nSwapTotal: 1 kB\n")
    root.put("run/systemd/system/file")
    root.put("dev/kvm")
    for name in ("cpu1", "cpu0", "cpufreq"):
        root.put(f"sys/devices/system/cpu/{name}/thermal_throttle/file")
    before = open_descriptors()
    host = root.read()
    assert open_descriptors() == before
    assert (host.memory_bytes, host.swap_bytes) == (2048, 1024)
    assert (host.has_app_armor, host.has_systemd, host.has_kvm) == (True, True, True)
    assert host.known_capabilities == frozenset(NAMES[:6])
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host.has_seccomp == ("\nSeccomp:" in Path("/proc/self/status").read_text())
    assert host.thermal_paths == tuple(
        f"{root.path}/sys/devices/system/cpu/{name}/thermal_throttle" for name in ("cpu0", "cpu1")
    )
    root.put("sys/module/apparmor/parameters/enabled", "N\n")
    assert not root.read().has_app_armor


@pytest.mark.parametrize(("limits", "wanted"), [(("7\n", "9\n"), 7), (("9", "8"), 8)])
def test_the_lower_limit_of_processes_holds(
    root: FakeRoot, limits: tuple[str, str], wanted: int
) -> None:
    for name, text in zip(("pid_max", "threads-max"), limits, strict=True):
        root.put(f"proc/sys/kernel/{name}", text)
    assert root.read().max_pids == wanted


@pytest.mark.parametrize(
    ("release", "expected"),
    [("6.18.5", (6, 18)), ("5.10.0-28-amd64", (5, 10)), ("4.4", (4, 4)), ("next", (0, 0))],
)
def test_kernels(release: str, expected: tuple[int, int]) -> None:
    assert kernel_version(release) == expected


def test_this_host_is_described() -> None:
    host, uname = read_host(), os.uname()
    assert host.kernel == Kernel(uname.release, kernel_version(uname.release), uname.machine)
    assert host.kernel.version > (3, 0)
    assert host.capabilities <= host.known_capabilities
    assert (host.hostname, host.cpu_count) == (uname.nodename.lower(), os.cpu_count())
    assert (host.address, host.cgroups) == (own_address(), current_cgroups())
    assert host.has_swap_accounting == has_swap_accounting(host.cgroups)
    assert host.is_root == (os.geteuid() == 0)
    assert host.max_pids > 1000


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
    label: str, is_in_effect: bool, root: FakeRoot
) -> None:
    root.put("proc/self/attr/current", label)
    assert not root.read().has_selinux
    root.put("sys/fs/selinux/enforce", "0")
    assert root.read().has_selinux == is_in_effect
