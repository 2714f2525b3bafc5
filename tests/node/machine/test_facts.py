from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.linux.host import Kernel
from moorage.node.machine.facts import facts_of
from tests.linux.hosts import linux_host


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("armv7l", "arm"), ("i686", "386"), ("x", "x")],
)
def test_facts_are_the_hosts_with_the_disk_and_gos_name_of_the_architecture(
    tmp_path: Path, machine: str, architecture: str
) -> None:
    host = linux_host(kernel=Kernel("6.1.2", (6, 1), machine), thermal_paths=("/a",))
    facts = facts_of(host, tmp_path / "not" / "there")
    disk = os.statvfs(tmp_path)
    assert (facts.kernel, facts.architecture) == ("6.1.2", architecture)
    assert facts.disk_bytes == disk.f_blocks * disk.f_frsize
    assert facts.os_image == "Debian GNU/Linux 13 (trixie)"
    for name in (
        "cpu_count", "memory_bytes", "swap_bytes", "max_pids", "huge_pages", "machine_id",
        "system_uuid", "boot_id", "hostname", "address", "thermal_paths",
    ):  # fmt: skip
        assert getattr(facts, name) == getattr(host, name)
