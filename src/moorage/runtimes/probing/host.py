"""Facts of a node that probes are compared with."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from moorage.linux.host import has_selinux
from moorage.runtimes.probing.programs.devices import BLOCK_DEVICES, CHARACTER_DEVICE, GPU_DEVICES


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is; empty or 0 for what is unknown from where the probes are run.

    `interfaces` are names of network interfaces, `ipc_namespace` is the link's target in /proc.
    `security_modules` has `apparmor` and `selinux` where they are on; None if that is unknown.
    `devices` are those of the probes' candidates that exist. `shares_mounts` says whether mounts
    below /dev propagate.
    """

    kernel: str
    boot_id: str
    architecture: str
    cpu_count: int = 0
    memory_bytes: int = 0
    interfaces: tuple[str, ...] = ()
    first_process: str = ""
    ipc_namespace: str = ""
    product: str = ""
    security_modules: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    shares_mounts: bool | None = None


# Places in a line of mountinfo: the mount point, and the first optional field. Source: proc(5).
_POINT, _OPTIONAL_FIELDS = 4, 6
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def read_host(process: str = "self") -> HostFacts:
    """Return the facts of this machine. Blocks for some file reads.

    `process` is one in the host's namespaces: 1 from a container with the host's process IDs.
    """
    directory = f"/proc/{process}"
    is_here = process == "self"
    system = os.uname()
    return HostFacts(
        kernel=system.release,
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        architecture=_ARCHITECTURES.get(system.machine, system.machine),
        cpu_count=os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        interfaces=tuple(sorted(_interfaces(f"{directory}/net/dev"))),
        first_process=_text("/proc/1/comm"),
        ipc_namespace=_link(f"{directory}/ns/ipc"),
        product=_text("/sys/class/dmi/id/product_name"),
        security_modules=_security_modules(),
        # A container has a /dev of its own.
        devices=_devices() if is_here else None,
        shares_mounts=_shares_mounts("/dev", f"{directory}/mountinfo"),
    )


def _devices() -> tuple[str, ...]:
    candidates = (CHARACTER_DEVICE, *GPU_DEVICES, *BLOCK_DEVICES)
    return tuple(path for path in candidates if Path(path).exists())


def _interfaces(path: str) -> list[str]:
    """Return the names in a /proc/PID/net/dev, whose first two lines are its heading."""
    return [line.partition(":")[0].strip() for line in _text(path).splitlines()[2:]]


def _security_modules() -> tuple[str, ...]:
    modules = []
    if _text("/sys/module/apparmor/parameters/enabled") == "Y":
        modules.append("apparmor")
    if has_selinux():
        modules.append("selinux")
    return tuple(modules)


def _shares_mounts(directory: str, mounts: str) -> bool | None:
    for line in _text(mounts).splitlines():
        # The optional fields end at a dash; spaces in names are escaped.
        fields = line.partition(" - ")[0].split(" ")
        if len(fields) > _POINT and fields[_POINT] == directory:
            return any(field.startswith("shared:") for field in fields[_OPTIONAL_FIELDS:])
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
