"""What this machine is and can do: gathered once, then passed around as a value.

Everything that decides how a cluster is set up here, and everything the doctor speaks of, is read
from a `Host`; nothing else looks at the machine.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from moorage.cluster.host.tools import (
    CniPlugins,
    Firewall,
    Tool,
    check_firewall,
    find_cni,
    find_tools,
)
from moorage.cluster.settings import host_ip
from moorage.handlers import Machine, search_path
from moorage.linux.capabilities import SYS_RESOURCE, effective_capabilities
from moorage.linux.cgroups import Cgroups, current_cgroups
from moorage.linux.kernel import can_open_kvm, kernel_version, physical_memory_bytes
from moorage.linux.overlay import supports_overlay

_SYSTEMD = Path("/run/systemd/system")
_DEBIAN = "debian"


@dataclass(frozen=True, slots=True)
class Kernel:
    """`version` is (major, minor); `machine` as `uname -m` says it."""

    release: str
    version: tuple[int, int]
    machine: str


@dataclass(frozen=True, slots=True)
class System:
    """The operating system. Source: os-release(5)."""

    name: str
    identifiers: frozenset[str] = frozenset()
    """Its ID and those it is like."""

    @property
    def is_debian_like(self) -> bool:
        return _DEBIAN in self.identifiers


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system that holds a data directory. `overlay` is None where it could not be
    tried.
    """

    directory: Path
    free_bytes: int
    total_bytes: int
    overlay: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The facts. `path` is the search path with which the programs were found."""

    is_root: bool
    capabilities: frozenset[str]
    kernel: Kernel
    system: System
    has_systemd: bool
    cgroups: Cgroups
    tools: Mapping[str, Tool]
    cni: CniPlugins
    firewall: Firewall
    has_kvm: bool
    disk: Disk
    memory_bytes: int
    path: str
    has_ipv4_route: bool = True

    @property
    def can_lower_oom_score(self) -> bool:
        return SYS_RESOURCE in self.capabilities

    @property
    def machine(self) -> Machine:
        """What runtimes need to know."""
        return Machine(self.kernel.version, self.has_kvm, self.cgroups.is_hugetlb_apart)


async def gather(data_dir: Path) -> Host:
    """The facts of this machine for a cluster that keeps its data in that directory.

    The directory need not exist. Takes tens of milliseconds; every program it asks has a deadline.
    """
    path = search_path()
    is_root = os.geteuid() == 0
    async with asyncio.TaskGroup() as group:
        tools = group.create_task(find_tools(path))
        firewall = group.create_task(check_firewall(path))
        disk = group.create_task(asyncio.to_thread(_disk, data_dir, is_root=is_root))
    return Host(
        is_root=is_root,
        capabilities=_capabilities(),
        kernel=_kernel(),
        system=_system(),
        has_systemd=_has_systemd(),
        cgroups=current_cgroups(),
        tools=tools.result(),
        cni=find_cni(),
        firewall=firewall.result(),
        has_kvm=can_open_kvm(),
        disk=disk.result(),
        memory_bytes=physical_memory_bytes(),
        path=path,
        has_ipv4_route=not IPv4Address(host_ip()).is_loopback,
    )


def _capabilities() -> frozenset[str]:
    return effective_capabilities(Path("/proc/self/status").read_text())


def _has_systemd() -> bool:
    return _SYSTEMD.is_dir()


def _kernel() -> Kernel:
    release = platform.release()
    return Kernel(release, kernel_version(release), platform.machine())


def _system() -> System:
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        return System(platform.system())
    identifiers = frozenset({told["ID"], *told.get("ID_LIKE", "").split()})
    return System(told.get("PRETTY_NAME", told["NAME"]), identifiers)


def _disk(data_dir: Path, *, is_root: bool) -> Disk:
    directory = next(each for each in (data_dir, *data_dir.absolute().parents) if each.is_dir())
    usage = shutil.disk_usage(directory)
    overlay = supports_overlay(directory) if is_root else None
    return Disk(directory, usage.free, usage.total, overlay)
