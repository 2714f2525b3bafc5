from __future__ import annotations

import asyncio
import os
from ipaddress import IPv4Address
from pathlib import Path

from moorage.cluster.host import gather
from moorage.cluster.host.tools import check_firewall, find_cni, find_tools
from moorage.cluster.settings import host_ip
from moorage.engine.handlers import Machine, search_path
from moorage.linux.capabilities import SYS_RESOURCE
from moorage.linux.host import read_host
from tests.cluster.hosts import a_host


def test_a_data_directory_that_is_not_there_yet_is_on_its_parents_disk(tmp_path: Path) -> None:
    host = asyncio.run(gather(tmp_path / "a" / "b c"))
    assert host.disk.directory == tmp_path
    assert host.disk.total_bytes >= host.disk.free_bytes > 0
    assert host.is_root == (os.geteuid() == 0)
    assert (host.disk.overlay is None) == (not host.is_root)
    assert host.memory_bytes > 0
    assert list(tmp_path.iterdir()) == []


async def test_an_inventory_has_what_each_source_found(tmp_path: Path) -> None:
    inventory, path = await gather(tmp_path), search_path()
    assert (inventory.path, inventory.cni) == (path, find_cni())
    assert inventory.tools == await find_tools(path)
    assert inventory.firewall == await check_firewall(path)
    assert inventory.has_ipv4_route is not IPv4Address(host_ip()).is_loopback
    host = read_host()
    assert (inventory.hostname, inventory.kernel) == (host.hostname, host.kernel)


def test_what_depends_on_the_hosts_facts() -> None:
    assert a_host().can_lower_oom_score
    assert not a_host(capabilities=frozenset()).can_lower_oom_score
    assert not a_host(capabilities=a_host().capabilities - {SYS_RESOURCE}).can_lower_oom_score
    host = a_host(has_kvm=False)
    assert host.machine == Machine.of(host)
    assert a_host().has_ipv4_route
