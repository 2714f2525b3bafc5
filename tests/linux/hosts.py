"""A `Host` with everything a node needs; a test names what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.linux.capabilities import NAMES, NEEDED, SYS_RESOURCE
from moorage.linux.cgroups import NEEDED_ON_V2, Cgroups, Layout
from moorage.linux.host import Host, Kernel, System
from moorage.linux.process_memory import LOWEST_OOM_SCORE

GIB = 1024**3
DEBIAN = System("Debian GNU/Linux 13 (trixie)", frozenset({"debian"}))
FACTS: dict[str, Any] = {
    "kernel": Kernel("6.12.9-amd64", (6, 12), "x86_64"),
    "system": DEBIAN,
    "hostname": "n1",
    "address": "192.0.2.7",
    "cpu_count": 4,
    "memory_bytes": 8 * GIB,
    "swap_bytes": 0,
    "max_pids": 32768,
    "huge_pages": {},
    "machine_id": "m1",
    "system_uuid": "u1",
    "boot_id": "b1",
    "cgroups": Cgroups(Layout.V2, {}, Path("/sys/fs/cgroup"), NEEDED_ON_V2),
    "has_swap_accounting": True,
    "has_kvm": True,
    "has_systemd": True,
    "has_app_armor": False,
    "has_selinux": False,
    "has_seccomp": True,
    "is_root": True,
    "capabilities": frozenset({*NEEDED, SYS_RESOURCE}),
    "known_capabilities": frozenset(NAMES),
    "oom_score_floor": LOWEST_OOM_SCORE,
}


def linux_host(**fields: Any) -> Host:
    return Host(**(FACTS | fields))
