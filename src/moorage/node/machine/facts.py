"""Host facts: CPUs, memory, disk, kernel, identity, address.

Read once from /proc, /sys and /etc; parsing is separate from reading. Source: proc(5),
machine-id(5), os-release(5); kubelet's and cAdvisor's choice of sources.
"""

from __future__ import annotations

import os
import platform
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.kernel import max_pids

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_MACHINE_ID = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_SYSTEM_UUID = (Path("/sys/class/dmi/id/product_uuid"), Path("/proc/device-tree/vm,uuid"))
_HUGE_PAGES = Path("/sys/kernel/mm/hugepages")
_THROTTLES = Path("/sys/devices/system/cpu")
# Documentation prefixes: no packet is sent, the kernel only selects a source address.
_ANYWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Facts about the host. `huge_pages` is bytes by resource name (`hugepages-2Mi`)."""

    cpu_count: int
    memory_bytes: int
    swap_bytes: int
    disk_bytes: int
    max_pids: int
    huge_pages: Mapping[str, int]
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel: str
    os_image: str
    architecture: str
    hostname: str
    address: str
    thermal_paths: tuple[str, ...] = ()


def read_facts(root_dir: Path) -> MachineFacts:
    """Read the host's facts; `root_dir` is a path on the disk that pods use. Blocks."""
    memory = parse_meminfo(Path("/proc/meminfo").read_text())
    disk = os.statvfs(_existing(root_dir))
    name = platform.uname()
    return MachineFacts(
        cpu_count=os.cpu_count() or 1,
        memory_bytes=memory["MemTotal"],
        swap_bytes=memory.get("SwapTotal", 0),
        disk_bytes=disk.f_blocks * disk.f_frsize,
        max_pids=max_pids(),
        huge_pages=_huge_pages(),
        machine_id=_first_line(*_MACHINE_ID),
        system_uuid=_first_line(*_SYSTEM_UUID),
        boot_id=_first_line(Path("/proc/sys/kernel/random/boot_id")),
        kernel=name.release,
        os_image=os_image(_text(Path("/etc/os-release"))),
        architecture=_ARCHITECTURES.get(name.machine, name.machine),
        hostname=name.node.lower(),
        address=own_address(),
        thermal_paths=tuple(
            str(path) for path in sorted(_THROTTLES.glob("cpu[0-9]*/thermal_throttle"))
        ),
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo; return bytes by name."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdigit():
            factor = 1024 if fields[1:] == ["kB"] else 1
            found[name] = int(fields[0]) * factor
    return found


def os_image(os_release: str) -> str:
    """Return the OS name (PRETTY_NAME) from /etc/os-release."""
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return " ".join(shlex.split(value))
    return "Linux"


def own_address() -> str:
    """Return the host's address on its default route; 127.0.0.1 without one."""
    for target, family in _ANYWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def _huge_pages() -> dict[str, int]:
    found: dict[str, int] = {}
    for directory in _HUGE_PAGES.glob("hugepages-*kB") if _HUGE_PAGES.is_dir() else ():
        kilobytes = int(directory.name.removeprefix("hugepages-").removesuffix("kB"))
        count = int(_first_line(directory / "nr_hugepages") or 0)
        found[f"hugepages-{_binary(kilobytes)}"] = count * kilobytes * 1024
    return found


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
    try:
        return path.read_text()
    except OSError:
        return ""


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
