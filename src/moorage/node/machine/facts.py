"""Host facts that the node object reports, derived from the `Host` of this process.

Source: kubelet's and cAdvisor's choice of facts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.host import Host

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Facts about the host. `huge_pages` is bytes by resource name (`hugepages-2Mi`)."""

    cpu_count: int
    memory_bytes: int
    swap_bytes: int
    disk_bytes: int
    max_pids: int
    huge_pages: Mapping[str, int]
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel: str
    os_image: str
    architecture: str
    hostname: str
    address: str
    thermal_paths: tuple[str, ...] = ()


def facts_of(host: Host, root_dir: Path) -> MachineFacts:
    """Return the node's facts; `root_dir` is a path on the disk that pods use. Blocks."""
    disk = os.statvfs(_existing(root_dir))
    return MachineFacts(
        cpu_count=host.cpu_count,
        memory_bytes=host.memory_bytes,
        swap_bytes=host.swap_bytes,
        disk_bytes=disk.f_blocks * disk.f_frsize,
        max_pids=host.max_pids,
        huge_pages=host.huge_pages,
        machine_id=host.machine_id,
        system_uuid=host.system_uuid,
        boot_id=host.boot_id,
        kernel=host.kernel.release,
        os_image=host.system.name,
        architecture=_ARCHITECTURES.get(host.kernel.machine, host.kernel.machine),
        hostname=host.hostname,
        address=host.address,
        thermal_paths=host.thermal_paths,
    )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
