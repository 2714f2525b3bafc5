"""A machine that has everything a node needs; a test says what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.cluster.host import CniPlugins, Disk, Firewall, Inventory, System, Tool
from moorage.cluster.host.tools import CNI_NEEDED, TOOLS
from tests.linux.hosts import DEBIAN, FACTS, GIB

__all__ = ["ALPINE", "DEBIAN", "GIB", "a_host", "tools_without"]

ALPINE = System("Alpine Linux v3.22", frozenset({"alpine"}))


def tools_without(*names: str) -> dict[str, Tool]:
    return {name: Tool(Path("/usr/bin", name), "1.0.0") for name in TOOLS if name not in names}


def a_host(**fields: Any) -> Inventory:
    inventory: dict[str, Any] = {
        "tools": tools_without(),
        "cni": CniPlugins(Path("/opt/cni/bin"), frozenset(CNI_NEEDED)),
        "firewall": Firewall(is_usable=True),
        "disk": Disk(Path("/var/lib"), 100 * GIB, 200 * GIB, overlay=True),
        "path": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    return Inventory(**(FACTS | inventory | fields))
