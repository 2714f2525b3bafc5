"""Container devices: device nodes, and the rules of the device cgroup.

Reading the host's nodes is separate from deciding. Source: CRI Device; OCI runtime-spec, "Devices"
and "Device whitelist".
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.engine.errors import InvalidError
from moorage.engine.oci.cdi import DeviceNode
from moorage.wire.cri import pb

ALL_ACCESS = "rwm"
_DEV = Path("/dev")
_DESCRIBED_MODE = 0o660
# Not nodes of the host: each container has its own of these.
_OWN_DIRECTORIES = frozenset({"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"})
_OWN_NODES = frozenset({"console", "ptmx"})

_Number = int | None
_STANDARD: tuple[tuple[str, _Number, _Number, str], ...] = (
    # mknod grants no access to the device.
    ("c", None, None, "m"),
    ("b", None, None, "m"),
    ("c", 1, 3, ALL_ACCESS),  # null
    ("c", 1, 5, ALL_ACCESS),  # zero
    ("c", 1, 7, ALL_ACCESS),  # full
    ("c", 1, 8, ALL_ACCESS),  # random
    ("c", 1, 9, ALL_ACCESS),  # urandom
    ("c", 5, 0, ALL_ACCESS),  # tty
    ("c", 5, 1, ALL_ACCESS),  # console
    ("c", 5, 2, ALL_ACCESS),  # ptmx
    ("c", 136, None, ALL_ACCESS),  # pts/*
)
"""Type, major, minor and access of the devices that every container may use; None is any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """A node to create in a container. `kind` is `c` or `b`."""

    path: str
    kind: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int
    permissions: str = ALL_ACCESS

    def node(self) -> dict[str, Any]:
        """The OCI `linux.devices` entry."""
        return {
            "path": self.path,
            "type": self.kind,
            "major": self.major,
            "minor": self.minor,
            "fileMode": self.mode,
            "uid": self.uid,
            "gid": self.gid,
        }

    def rule(self) -> dict[str, Any]:
        """The OCI `linux.resources.devices` entry."""
        return _rule(self.kind, self.major, self.minor, self.permissions)


def device_rules(devices: Iterable[HostDevice], *, is_all_allowed: bool) -> list[dict[str, Any]]:
    """Return the cgroup's rules: all devices, or only the standard ones and these."""
    if is_all_allowed:
        return [{"allow": True, "access": ALL_ACCESS}]
    return [
        {"allow": False, "access": ALL_ACCESS},
        *(_rule(*device) for device in _STANDARD),
        *(device.rule() for device in devices),
    ]


def resolve_devices(requests: Iterable[pb.Device]) -> tuple[HostDevice, ...]:
    """Return the requested devices; a directory means the devices in it. Blocks.

    Raises InvalidError for a path without a device, or permissions other than r, w and m.
    """
    devices: dict[str, HostDevice] = {}
    for request in requests:
        permissions = request.permissions or ALL_ACCESS
        if not set(permissions) <= set(ALL_ACCESS):
            raise InvalidError(
                f"device {request.host_path}: permissions {permissions!r} contains letters other "
                "than r, w and m"
            )
        target = request.container_path or request.host_path
        if not target.startswith("/"):
            raise InvalidError(
                f"device {request.host_path}: container_path must be an absolute path"
            )
        for device in _read(Path(os.path.realpath(request.host_path)), target, permissions):
            devices[device.path] = device
    return tuple(devices.values())


def described_devices(nodes: Iterable[DeviceNode]) -> tuple[HostDevice, ...]:
    """Return the devices of CDI files; absent fields are read from the host's nodes. Blocks.

    Raises InvalidError for one that has neither.
    """
    return tuple(_described(node) for node in nodes)


def all_host_devices(directory: Path = _DEV) -> tuple[HostDevice, ...]:
    """Return every device of the host, for a privileged container. Blocks."""
    return tuple(
        device
        for path in _walk(directory)
        if path.name not in _OWN_NODES
        and (device := read_device(path, str(path), ALL_ACCESS)) is not None
    )


def read_device(path: Path, target: str, permissions: str) -> HostDevice | None:
    """Return the device at a path of the host; None without one. Blocks."""
    try:
        status = path.lstat()
    except OSError:
        return None
    kind = _kind(status.st_mode)
    if not kind:
        return None
    return HostDevice(
        path=target,
        kind=kind,
        major=os.major(status.st_rdev),
        minor=os.minor(status.st_rdev),
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        permissions=permissions,
    )


def _described(node: DeviceNode) -> HostDevice:
    permissions = node.permissions or ALL_ACCESS
    host = Path(node.host_path or node.path)
    device = read_device(Path(os.path.realpath(host)), node.path, permissions)
    kind = node.type or (device.kind if device else "")
    # `u` is the older name of a character device.
    kind = "c" if kind == "u" else kind
    major = _first(node.major, device.major if device else None)
    minor = _first(node.minor, device.minor if device else None)
    if kind not in ("b", "c") or major is None or minor is None:
        raise InvalidError(
            f"CDI device node {host} does not exist or is not a device; load its driver, or "
            "regenerate the CDI spec with the vendor's tool"
        )
    return HostDevice(
        path=node.path,
        kind=kind,
        major=major,
        minor=minor,
        mode=_first(node.file_mode, device.mode if device else None) or _DESCRIBED_MODE,
        uid=_first(node.uid, device.uid if device else None) or 0,
        gid=_first(node.gid, device.gid if device else None) or 0,
        permissions=permissions,
    )


def _first(configured: int | None, present: int | None) -> int | None:
    return configured if configured is not None else present


def _read(host: Path, target: str, permissions: str) -> Iterator[HostDevice]:
    if host.is_dir():
        for path in _walk(host):
            inside = posixpath.join(target, str(path.relative_to(host)))
            if (device := read_device(path, inside, permissions)) is not None:
                yield device
        return
    device = read_device(host, target, permissions)
    if device is None:
        raise InvalidError(f"device {host} does not exist or is not a device node of this host")
    yield device


def _walk(directory: Path) -> Iterator[Path]:
    """Yield all entries but directories, as deep as a path can name."""
    waiting = [str(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name)
        except OSError:
            # Gone meanwhile, or deeper than PATH_MAX.
            continue
        inner = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from (Path(entry.path) for entry in entries if entry not in inner)
        waiting += [
            directory.path
            for directory in reversed(inner)
            if directory.name not in _OWN_DIRECTORIES
        ]


def _kind(mode: int) -> str:
    if stat.S_ISCHR(mode):
        return "c"
    return "b" if stat.S_ISBLK(mode) else ""


def _rule(kind: str, major: _Number, minor: _Number, access: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"allow": True, "type": kind, "access": access}
    if major is not None:
        rule["major"] = major
    if minor is not None:
        rule["minor"] = minor
    return rule
