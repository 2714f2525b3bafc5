"""Host facts: kernel, memory, cgroups, capabilities, identity, read in one place.

A process reads them once with `read_host` and passes the `Host` down; each part derives what it
needs from it. Parsing is separate from reading. Source: proc(5), capabilities(7), machine-id(5),
os-release(5), Linux cgroup-v1 and cgroup-v2 documents; kubelet's and cAdvisor's choice of sources.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.address import own_address
from moorage.linux.capabilities import NAMES, effective_capabilities
from moorage.linux.cgroups import Cgroups, Layout, current_cgroups
from moorage.linux.process_memory import oom_score_floor, own_oom_score

# Facts about the running kernel: version, KVM, limits.
#
# Source: uname(2); proc(5); Linux, Documentation/virt/kvm/api.rst.

_RELEASE = re.compile(r"^(\d+)\.(\d+)")
_ROOT = Path("/")
_KVM = Path("dev/kvm")
_TASK_LIMITS = (Path("proc/sys/kernel/pid_max"), Path("proc/sys/kernel/threads-max"))


def kernel_version(release: str) -> tuple[int, int]:
    """Return the major and minor version in a kernel release; (0, 0) if it has none."""
    match = _RELEASE.match(release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def can_open_kvm(root: Path = _ROOT) -> bool:
    """Return whether this process can open /dev/kvm, which virtual machines need."""
    try:
        os.close(os.open(root / _KVM, os.O_RDWR))
    except OSError:
        return False
    return True


def max_pids(root: Path = _ROOT) -> int:
    """Return how many processes and threads the kernel allows at once. Raises OSError.

    The lower of both settings, as in the kubelet's node allocatable.
    """
    return min(int((root / path).read_text()) for path in _TASK_LIMITS)


_MACHINE_ID = (Path("etc/machine-id"), Path("var/lib/dbus/machine-id"))
_SYSTEM_UUID = (Path("sys/class/dmi/id/product_uuid"), Path("proc/device-tree/vm,uuid"))
_BOOT_ID = Path("proc/sys/kernel/random/boot_id")
_HUGE_PAGES = Path("sys/kernel/mm/hugepages")
_THROTTLES = Path("sys/devices/system/cpu")
_MEMORY = Path("proc/meminfo")
_STATUS = Path("proc/self/status")
_LAST_CAPABILITY = Path("proc/sys/kernel/cap_last_cap")
_APP_ARMOR = Path("sys/module/apparmor/parameters/enabled")
_SELINUX = Path("sys/fs/selinux/enforce")
_LABEL = Path("proc/self/attr/current")
_NO_POLICY = "kernel"
"""The label of every process as long as no policy is loaded: SELinux's initial SID."""
_SYSTEMD = Path("run/systemd/system")
_V1_SWAP = "memory.memsw.limit_in_bytes"
_V2_SWAP = "memory.swap.max"
_DEBIAN = "debian"


@dataclass(frozen=True, slots=True)
class Kernel:
    """The running kernel. `version` is (major, minor); `machine` is uname's processor name."""

    release: str
    version: tuple[int, int]
    machine: str


@dataclass(frozen=True, slots=True)
class System:
    """The operating system: its PRETTY_NAME. Source: os-release(5)."""

    name: str
    identifiers: frozenset[str] = frozenset()
    """Its ID and those it is like."""

    @property
    def is_debian_like(self) -> bool:
        return _DEBIAN in self.identifiers


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host and the rights of this process on it.

    `huge_pages` is bytes by resource name (`hugepages-2Mi`). `capabilities` are the effective ones
    of this process, `known_capabilities` the kernel's, both with their CAP_. `oom_score_floor` is
    the lowest oom_score_adj that this process may set.
    """

    kernel: Kernel
    system: System
    hostname: str
    address: str
    cpu_count: int
    memory_bytes: int
    swap_bytes: int
    max_pids: int
    huge_pages: Mapping[str, int]
    machine_id: str
    system_uuid: str
    boot_id: str
    cgroups: Cgroups
    has_swap_accounting: bool
    has_kvm: bool
    has_systemd: bool
    has_app_armor: bool
    has_selinux: bool
    has_seccomp: bool
    is_root: bool
    capabilities: frozenset[str]
    known_capabilities: frozenset[str]
    oom_score_floor: int
    thermal_paths: tuple[str, ...] = ()


def read_host(root: Path = _ROOT) -> Host:
    """Return the facts of this host and process at present. Blocks. Raises OSError without /proc.

    Files are read below `root`.

    A device or a cgroup mount may appear later.
    """
    memory = parse_meminfo((root / _MEMORY).read_text())
    status = (root / _STATUS).read_text()
    capabilities = effective_capabilities(status)
    uname = os.uname()
    cgroups = current_cgroups()
    return Host(
        kernel=Kernel(uname.release, kernel_version(uname.release), uname.machine),
        system=system_of(_release()),
        hostname=uname.nodename.lower(),
        address=own_address(),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=memory["MemTotal"],
        swap_bytes=memory.get("SwapTotal", 0),
        max_pids=max_pids(root),
        huge_pages=_huge_pages(root / _HUGE_PAGES),
        machine_id=_first_line(*(root / path for path in _MACHINE_ID)),
        system_uuid=_first_line(*(root / path for path in _SYSTEM_UUID)),
        boot_id=_first_line(root / _BOOT_ID),
        cgroups=cgroups,
        has_swap_accounting=has_swap_accounting(cgroups),
        has_kvm=can_open_kvm(root),
        has_systemd=has_systemd(root),
        has_app_armor=_text(root / _APP_ARMOR).strip() == "Y",
        has_selinux=has_selinux(root),
        has_seccomp="\nSeccomp:" in status,
        is_root=os.geteuid() == 0,
        capabilities=capabilities,
        known_capabilities=parse_last_capability(_text(root / _LAST_CAPABILITY).strip()),
        oom_score_floor=oom_score_floor(capabilities, own_oom_score()),
        thermal_paths=tuple(
            str(path) for path in sorted((root / _THROTTLES).glob("cpu[0-9]*/thermal_throttle"))
        ),
    )


def has_systemd(root: Path = _ROOT) -> bool:
    """Return whether systemd is the init of this host. Source: sd_booted(3)."""
    return (root / _SYSTEMD).is_dir()


def has_selinux(root: Path = _ROOT) -> bool:
    """Return whether a policy of SELinux is in effect; without one, runtimes refuse labels.

    Debian's kernels may have SELinux switched on while no policy is installed. Source: go-selinux,
    `GetEnabled`; SELinux initial SIDs.
    """
    return (root / _SELINUX).exists() and _text(root / _LABEL).rstrip("\0\n") != _NO_POLICY


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo; return bytes by name."""
    amounts: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdigit():
            factor = 1024 if fields[1:] == ["kB"] else 1
            amounts[name] = int(fields[0]) * factor
    return amounts


def parse_last_capability(last: str) -> frozenset[str]:
    """Return the capabilities of a kernel whose highest has that number; all without a number."""
    return frozenset(NAMES[: int(last) + 1] if last.isdecimal() else NAMES)


def has_swap_accounting(cgroups: Cgroups) -> bool:
    """Return whether the kernel limits swap by cgroup. Reads the hierarchies.

    Version 2 has the file in every group but the root, so any group shows it.
    """
    if cgroups.layout is Layout.V2 and cgroups.unified is not None:
        return any(cgroups.unified.glob(f"*/{_V2_SWAP}"))
    memory = cgroups.v1.get("memory")
    return memory is not None and (memory / _V1_SWAP).exists()


def _release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def system_of(release: Mapping[str, str]) -> System:
    """Return the operating system that an os-release describes; an empty one if it has none."""
    if not release:
        return System(platform.system())
    identifiers = frozenset({release["ID"], *release.get("ID_LIKE", "").split()})
    return System(release.get("PRETTY_NAME", release["NAME"]), identifiers)


def _huge_pages(pages: Path) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for directory in pages.glob("hugepages-*kB") if pages.is_dir() else ():
        kilobytes = int(directory.name.removeprefix("hugepages-").removesuffix("kB"))
        count = int(_first_line(directory / "nr_hugepages") or 0)
        amounts[f"hugepages-{_binary(kilobytes)}"] = count * kilobytes * 1024
    return amounts


def _binary(kilobytes: int) -> str:
    for unit, factor in (("Gi", 1 << 20), ("Mi", 1 << 10)):
        if kilobytes % factor == 0:
            return f"{kilobytes // factor}{unit}"
    return f"{kilobytes}Ki"


def _first_line(*paths: Path) -> str:
    for path in paths:
        text = _text(path).strip("\x00 \n")
        if text:
            return text.splitlines()[0]
    return ""


def _text(path: Path) -> str:
    """Return a file's text, empty if the kernel has no such file."""
    try:
        return path.read_text()
    except OSError:
        return ""
