"""A machine that has everything a node needs; a test says what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.cluster.host import Cgroups, CniPlugins, Disk, Firewall, Host, Kernel, System, Tool
from moorage.cluster.host import Layout as CgroupLayout
from moorage.cluster.host.tools import CNI_NEEDED, TOOLS
from moorage.linux.capabilities import NEEDED, SYS_RESOURCE
from moorage.linux.cgroups import NEEDED_ON_V2

DEBIAN = System("Debian GNU/Linux 13 (trixie)", frozenset({"debian"}))
ALPINE = System("Alpine Linux v3.22", frozenset({"alpine"}))
GIB = 1024**3


def tools_without(*names: str) -> dict[str, Tool]:
    return {name: Tool(Path("/usr/bin", name), "1.0.0") for name in TOOLS if name not in names}


def a_host(**fields: Any) -> Host:
    usual: dict[str, Any] = {
        "is_root": True,
        "capabilities": frozenset({*NEEDED, SYS_RESOURCE}),
        "kernel": Kernel("6.12.9-amd64", (6, 12), "x86_64"),
        "system": DEBIAN,
        "has_systemd": True,
        "cgroups": Cgroups(CgroupLayout.V2, {}, Path("/sys/fs/cgroup"), NEEDED_ON_V2),
        "tools": tools_without(),
        "cni": CniPlugins(Path("/opt/cni/bin"), frozenset(CNI_NEEDED)),
        "firewall": Firewall(is_usable=True),
        "has_kvm": True,
        "disk": Disk(Path("/var/lib"), 100 * GIB, 200 * GIB, overlay=True),
        "memory_bytes": 8 * GIB,
        "path": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    return Host(**(usual | fields))
