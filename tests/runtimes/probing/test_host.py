"""Facts of a node, as this machine has them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from moorage.runtimes.probing.host import read_host
from moorage.runtimes.probing.programs.devices import BLOCK_DEVICES, CHARACTER_DEVICE, GPU_DEVICES


def test_the_facts_are_those_of_this_machine() -> None:
    host = read_host()
    assert host.kernel == os.uname().release
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host.architecture == {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    assert host.cpu_count == os.cpu_count()
    meminfo = Path("/proc/meminfo").read_text().split()
    assert host.memory_bytes == int(meminfo[meminfo.index("MemTotal:") + 1]) * 1024
    assert host.interfaces == tuple(sorted(name for _, name in socket.if_nameindex()))
    assert host.first_process == Path("/proc/1/comm").read_text().strip()
    assert host.ipc_namespace == os.readlink("/proc/self/ns/ipc")
    candidates = (CHARACTER_DEVICE, *GPU_DEVICES, *BLOCK_DEVICES)
    assert host.devices == tuple(path for path in candidates if Path(path).exists())
    assert host.devices[0] == "/dev/zero"


def test_mounts_of_dev_propagate_where_mountinfo_says_shared() -> None:
    lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    of_dev = [fields for fields in lines if fields[4] == "/dev"]
    expected = any(field.startswith("shared:") for field in of_dev[0][6:]) if of_dev else None
    assert read_host().shares_mounts is expected


@pytest.mark.parametrize(
    ("lines", "is_shared"),
    [
        (["23 28 0:6 / /dev rw,nosuid shared:2 - devtmpfs udev rw"], True),
        (["23 28 0:6 / /dev rw,nosuid master:1 shared:2 - devtmpfs udev rw"], True),
        (["23 28 0:6 / /dev rw,nosuid - devtmpfs shared:2 rw"], False),
        (["23 28 0:6 / /dev rw,nosuid master:1 - devtmpfs udev rw"], False),
        (["23 28 0:6 /dev / rw,nosuid shared:2 - devtmpfs udev rw"], None),
        (["9 1 0:5 / / rw shared:1 - ext4 a rw", "23 28 0:6 / /dev rw - tmpfs b rw"], False),
        ([], None),
    ],
)
def test_mounts_of_dev_propagate_by_the_optional_fields_of_their_line(
    tmp_path: Path, lines: list[str], is_shared: bool | None
) -> None:
    (tmp_path / "mountinfo").write_text("".join(f"{line}\n" for line in lines))
    assert read_host(f"..{tmp_path}").shares_mounts is is_shared


def test_from_another_process_devices_are_not_known() -> None:
    host = read_host(str(os.getppid()))
    assert host.devices is None
    assert host.ipc_namespace == os.readlink("/proc/self/ns/ipc")
    assert host.interfaces == read_host().interfaces


def test_a_process_that_is_not_there_has_no_namespaces() -> None:
    host = read_host("none")
    assert (host.ipc_namespace, host.interfaces, host.shares_mounts) == ("", (), None)
