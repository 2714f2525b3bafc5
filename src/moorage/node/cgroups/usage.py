"""Usage of a pod's cgroup: what the whole pod uses, the runtime's own processes included.

The containers' usage is the engine's to report; the difference is what the sandbox costs. Source:
cgroup v2 `cpu.stat`, `memory.current`, `memory.stat`; v1 `cpuacct`, `memory`; cAdvisor.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from moorage.linux.cgroups import Cgroups, Layout, directory_in
from moorage.linux.guest_cgroups import outside_cgroup

_MICRO = 1000


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """CPU time in nanoseconds, and memory in bytes.

    `working_set_bytes` leaves out idle caches, `unreclaimable_bytes` all caches of files.
    """

    cpu_ns: int
    memory_bytes: int
    working_set_bytes: int
    unreclaimable_bytes: int = 0


def cgroup_usage(cgroups: Cgroups, path: str) -> CgroupUsage | None:
    """Return the usage of a cgroup and its descendants, None if it does not exist. Blocks."""
    try:
        return _v2(cgroups, path) if cgroups.layout is Layout.V2 else _v1(cgroups, path)
    except (FileNotFoundError, ProcessLookupError):
        # It was removed between two files.
        return None
    except OSError as error:
        # The kernel answers ENODEV for the files of a cgroup that is being removed.
        if error.errno == errno.ENODEV:
            return None
        raise


def pod_usage(cgroups: Cgroups, path: str, sandbox_ids: Iterable[str]) -> CgroupUsage | None:
    """Return a pod's usage: its cgroup, and its virtual machine outside of that. Blocks.

    `sandbox_ids` are those of the pod's sandboxes; None if the pod's cgroup does not exist.
    """
    pod = cgroup_usage(cgroups, path)
    if pod is None:
        return None
    guests = (cgroup_usage(cgroups, outside_cgroup(sandbox_id)) for sandbox_id in sandbox_ids)
    return total((pod, *filter(None, guests)))


def total(usages: Iterable[CgroupUsage]) -> CgroupUsage:
    """Return the sum of several usages."""
    rows = [astuple(usage) for usage in usages]
    return CgroupUsage(*(sum(column) for column in zip(*rows, strict=True)))


def _v2(cgroups: Cgroups, path: str) -> CgroupUsage | None:
    if cgroups.unified is None:
        return None
    directory = directory_in(cgroups.unified, path)
    memory = int((directory / "memory.current").read_text())
    return CgroupUsage(
        cpu_ns=_MICRO * _field(directory / "cpu.stat", "usage_usec"),
        memory_bytes=memory,
        **_caches(memory, directory / "memory.stat", "inactive_file", "active_file"),
    )


def _v1(cgroups: Cgroups, path: str) -> CgroupUsage | None:
    accounting, memory_mount = cgroups.v1.get("cpuacct"), cgroups.v1.get("memory")
    if accounting is None or memory_mount is None:
        return None
    directory = directory_in(memory_mount, path)
    memory = int((directory / "memory.usage_in_bytes").read_text())
    return CgroupUsage(
        cpu_ns=int((directory_in(accounting, path) / "cpuacct.usage").read_text()),
        memory_bytes=memory,
        **_caches(memory, directory / "memory.stat", "total_inactive_file", "total_active_file"),
    )


def process_count(cgroups: Cgroups, path: str) -> int | None:
    """Return the processes and threads in a cgroup; None if it does not exist. Blocks."""
    mount = cgroups.mount_of("pids")
    if mount is None:
        return None
    try:
        return int((directory_in(mount, path) / "pids.current").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


def _caches(memory: int, file: Path, inactive: str, active: str) -> dict[str, int]:
    idle = _field(file, inactive)
    return {
        "working_set_bytes": max(0, memory - idle),
        "unreclaimable_bytes": max(0, memory - idle - _field(file, active)),
    }


def _field(file: Path, name: str) -> int:
    """Return a field of a file of `name value` lines; 0 without it."""
    for line in file.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
