"""Host inventory: the host's facts, and the programs, plugins and disk that a cluster uses on it.

Read once by `gather`, then passed down as a value: it decides how a cluster is set up here, and
`moor doctor` judges it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
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
from moorage.engine.handlers import Machine, search_path
from moorage.linux.capabilities import SYS_RESOURCE
from moorage.linux.host import Host, read_host
from moorage.linux.mounts import supports_overlay


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a data directory. `overlay` is None if it could not be tried."""

    directory: Path
    free_bytes: int
    total_bytes: int
    overlay: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory(Host):
    """The host with what a cluster uses on it. `path` is the search path for programs."""

    tools: Mapping[str, Tool]
    cni: CniPlugins
    firewall: Firewall
    disk: Disk
    path: str
    has_ipv4_route: bool = True

    @property
    def can_lower_oom_score(self) -> bool:
        """Whether a process may get a lower OOM score than its parent."""
        return SYS_RESOURCE in self.capabilities

    @property
    def machine(self) -> Machine:
        """The facts that runtimes depend on."""
        return Machine.of(self)


async def gather(data_dir: Path) -> Inventory:
    """Return the inventory of this host for a cluster with that data directory.

    The directory need not exist. Takes tens of milliseconds; each program it runs has a deadline.
    """
    path = search_path()
    is_root = os.geteuid() == 0
    async with asyncio.TaskGroup() as group:
        host = group.create_task(asyncio.to_thread(read_host))
        tools = group.create_task(find_tools(path))
        firewall = group.create_task(check_firewall(path))
        disk = group.create_task(asyncio.to_thread(_disk, data_dir, is_root=is_root))
    facts = {field.name: getattr(host.result(), field.name) for field in fields(Host)}
    return Inventory(
        **facts,
        tools=tools.result(),
        cni=find_cni(),
        firewall=firewall.result(),
        disk=disk.result(),
        path=path,
        has_ipv4_route=not IPv4Address(host_ip()).is_loopback,
    )


def _disk(data_dir: Path, *, is_root: bool) -> Disk:
    directory = next(path for path in (data_dir, *data_dir.absolute().parents) if path.is_dir())
    usage = shutil.disk_usage(directory)
    overlay = supports_overlay(directory) if is_root else None
    return Disk(directory, usage.free, usage.total, overlay)
