from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cluster.host import CniPlugins, Disk, Firewall, Tool, facts, gather
from moorage.engine.handlers import Machine
from moorage.linux.capabilities import SYS_RESOURCE
from tests.cluster.hosts import a_host
from tests.linux.hosts import linux_host


def test_a_data_directory_that_is_not_there_yet_is_on_its_parents_disk(tmp_path: Path) -> None:
    host = asyncio.run(gather(tmp_path / "a" / "b c"))
    assert host.disk.directory == tmp_path
    assert host.disk.total_bytes >= host.disk.free_bytes > 0
    assert host.is_root == (os.geteuid() == 0)
    assert (host.disk.overlay is None) == (not host.is_root)
    assert host.memory_bytes > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize(("address", "is_routed"), [("192.0.2.7", True), ("127.0.0.1", False)])
async def test_an_inventory_has_what_each_source_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_root: bool, address: str, is_routed: bool
) -> None:
    tools = {"crun": Tool(Path("/usr/bin/crun"), "1.2")}
    found: dict[str, Any] = {
        "find_tools": tools, "check_firewall": Firewall(is_usable=True, complaint="x")
    }  # fmt: skip

    def search(name: str) -> Any:
        async def call(path: str) -> Any:
            assert path == "/sbin:/bin"
            return found[name]

        return call

    for name in found:
        monkeypatch.setattr(facts, name, search(name))
    cni = CniPlugins(Path("/cni"), frozenset({"bridge"}))
    host = linux_host(hostname="n7")
    tried: list[Path] = []
    monkeypatch.setattr(facts, "search_path", lambda: "/sbin:/bin")
    monkeypatch.setattr(facts, "find_cni", lambda: cni)
    monkeypatch.setattr(facts, "read_host", lambda: host)
    monkeypatch.setattr(facts, "host_ip", lambda: address)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    monkeypatch.setattr(facts, "supports_overlay", lambda path: bool(tried.append(path) or True))
    usage = SimpleNamespace(free=5, total=9)
    monkeypatch.setattr(shutil, "disk_usage", {tmp_path: usage}.__getitem__)
    inventory = await gather(tmp_path / "absent")
    assert (inventory.tools, inventory.cni, inventory.path) == (tools, cni, "/sbin:/bin")
    assert inventory.firewall == found["check_firewall"]
    assert inventory.disk == Disk(tmp_path, 5, 9, overlay=True if is_root else None)
    assert tried == ([tmp_path] if is_root else [])
    assert inventory.has_ipv4_route is is_routed
    assert (inventory.hostname, inventory.kernel) == ("n7", host.kernel)


def test_what_depends_on_the_hosts_facts() -> None:
    assert a_host().can_lower_oom_score
    assert not a_host(capabilities=frozenset()).can_lower_oom_score
    assert not a_host(capabilities=a_host().capabilities - {SYS_RESOURCE}).can_lower_oom_score
    host = a_host(has_kvm=False)
    assert host.machine == Machine.of(host)
    assert a_host().has_ipv4_route
