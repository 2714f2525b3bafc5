from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci.cdi import DeviceNode
from moorage.engine.oci.devices import (
    HostDevice,
    all_host_devices,
    described_devices,
    device_rules,
    resolve_devices,
)
from moorage.wire.cri import pb

NULL = HostDevice(path="/dev/x", kind="c", major=1, minor=3, mode=0o666, uid=0, gid=0)

needs_nodes = pytest.mark.skipif(
    not stat.S_ISCHR(os.stat("/dev/null").st_mode), reason="no device nodes here"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


def device(host: str, target: str = "/dev/x", permissions: str = "rw") -> pb.Device:
    return pb.Device(host_path=host, container_path=target, permissions=permissions)


def node(path: Path, minor: int) -> None:
    try:
        os.mknod(path, 0o640 | stat.S_IFCHR, os.makedev(1, minor))
    except PermissionError:
        pytest.skip("this file system takes no device nodes")


@needs_nodes
def test_a_device_is_made_as_the_host_has_it() -> None:
    (device_entry,) = resolve_devices([device("/dev/null")])
    mode = stat.S_IMODE(os.stat("/dev/null").st_mode)
    assert device_entry.node() == {
        "path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": mode, "uid": 0, "gid": 0,
    }  # fmt: skip
    assert device_entry.rule() == {
        "allow": True, "type": "c", "major": 1, "minor": 3, "access": "rw",
    }  # fmt: skip


@needs_nodes
def test_a_link_to_a_device_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    (device_entry,) = resolve_devices([device(str(tmp_path / "link"))])
    assert (device_entry.major, device_entry.minor) == (1, 3)


@needs_nodes
@needs_root
def test_a_directory_means_the_devices_in_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    node(tmp_path / "a", 3)
    node(tmp_path / "deep/b", 5)
    (tmp_path / "file").write_text("no device")
    devices = resolve_devices([device(str(tmp_path), "/dev/all")])
    assert [(device.path, device.minor) for device in devices] == [
        ("/dev/all/a", 3),
        ("/dev/all/deep/b", 5),
    ]


@needs_nodes
@needs_root
def test_all_devices_are_the_machines_without_what_each_container_has_of_its_own(
    tmp_path: Path,
) -> None:
    own = ("pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev")
    for directory in (*own, "input"):
        (tmp_path / directory).mkdir()
    for name in ("null", "console", "ptmx", *(f"{entry}/x" for entry in own), "input/event0"):
        node(tmp_path / name, 3)
    (tmp_path / "link").symlink_to("null")
    result = {
        Path(device.path).relative_to(tmp_path).as_posix() for device in all_host_devices(tmp_path)
    }
    assert result == {"null", "input/event0"}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (device("/nowhere"), "device /nowhere does not exist or is not a device"),
        (device("/etc/passwd"), "does not exist or is not a device"),
        (device("/dev/null", permissions="rx"), "permissions 'rx'"),
        (device("/dev/null", target="dev/x"), "container_path must be an absolute path"),
    ],
)
def test_invalid_devices_are_rejected(asked: pb.Device, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        resolve_devices([asked])


@needs_nodes
def test_unsaid_permissions_and_paths_are_all_and_the_same() -> None:
    (device_entry,) = resolve_devices([pb.Device(host_path="/dev/null")])
    assert (device_entry.path, device_entry.permissions) == ("/dev/null", "rwm")


def test_rules_deny_what_is_not_named() -> None:
    rules = device_rules([NULL], is_all_allowed=False)
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert all(rule["allow"] for rule in rules[1:])
    assert rules[-1] == NULL.rule()
    named = [(rule.get("major"), rule.get("minor")) for rule in rules if rule["access"] == "rwm"]
    assert (1, 3) in named
    assert (1, 1) not in named


def test_rules_may_allow_everything() -> None:
    assert device_rules([NULL], is_all_allowed=True) == [{"allow": True, "access": "rwm"}]


def test_a_described_device_need_not_be_there() -> None:
    described = DeviceNode(path="/dev/gpu", type="u", major=195, minor=7, permissions="rw", gid=44)
    (device_entry,) = described_devices([described])
    assert device_entry == HostDevice(
        path="/dev/gpu", kind="c", major=195, minor=7, mode=0o660, uid=0, gid=44, permissions="rw"
    )


@needs_nodes
def test_what_a_description_leaves_out_is_the_hosts() -> None:
    (device_entry,) = described_devices(
        [DeviceNode(path="/dev/gpu", host_path="/dev/zero", minor=9)]
    )
    assert (device_entry.path, device_entry.kind, device_entry.major, device_entry.minor) == (
        "/dev/gpu",
        "c",
        1,
        9,
    )
    with pytest.raises(InvalidError, match="CDI device node /nowhere"):
        described_devices([DeviceNode(path="/nowhere")])
