"""Cgroups of probe pods: one for each, with the limits that a node agent would set.

Every call blocks for some system calls. Source: kubelet "pod level cgroups"; cgroups(7).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from moorage.linux.cgroup_control import CgroupError, make_cgroup
from moorage.linux.cgroup_removal import kill_and_remove_cgroup_blocking
from moorage.linux.cgroups import Cgroups, Layout, directory_in

_PERIOD_US = 100_000
_LEAST_SHARES = 2
_LEAST_WEIGHT = 1


def make_pod_cgroup(
    cgroups: Cgroups, path: str, *, cpu_millis: int, memory_bytes: int, pids: int
) -> None:
    """Create a cgroup with these limits, or change them; without one of CPU, at lowest priority.

    Raises CgroupError.
    """
    make_cgroup(cgroups, path)
    files = _v2_files if cgroups.layout is Layout.V2 else _v1_files
    try:
        for controller, name, value in files(cpu_millis, memory_bytes, pids):
            mount = cgroups.mount_of(controller)
            if mount is not None:
                _write(directory_in(mount, path) / name, value)
    except OSError as error:
        raise CgroupError(
            error.errno, f"limits of cgroup {path} cannot be set: {error.strerror}"
        ) from error


def remove_pod_cgroup(cgroups: Cgroups, path: str) -> None:
    """Kill what is in a cgroup and remove it. Raises CgroupError."""
    kill_and_remove_cgroup_blocking(cgroups, path)


def pod_cgroups_below(cgroups: Cgroups, parent: str) -> frozenset[str]:
    """Return the cgroups right below one, in any hierarchy."""
    return frozenset(
        f"{parent}/{entry.name}"
        for directory in cgroups.directories(parent)
        for entry in _entries(directory)
    )


def _entries(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (entry for entry in directory.iterdir() if entry.is_dir())


def _v1_files(cpu_millis: int, memory_bytes: int, pids: int) -> Iterator[tuple[str, str, str]]:
    yield "cpu", "cpu.shares", str(max(_LEAST_SHARES, cpu_millis * 1024 // 1000))
    if cpu_millis:
        yield "cpu", "cpu.cfs_period_us", str(_PERIOD_US)
        yield "cpu", "cpu.cfs_quota_us", str(cpu_millis * _PERIOD_US // 1000)
    yield "memory", "memory.limit_in_bytes", str(memory_bytes)
    yield "pids", "pids.max", str(pids)


def _v2_files(cpu_millis: int, memory_bytes: int, pids: int) -> Iterator[tuple[str, str, str]]:
    yield "cpu", "cpu.weight", str(max(_LEAST_WEIGHT, cpu_millis // 10))
    if cpu_millis:
        yield "cpu", "cpu.max", f"{cpu_millis * _PERIOD_US // 1000} {_PERIOD_US}"
    yield "memory", "memory.max", str(memory_bytes)
    yield "pids", "pids.max", str(pids)


def _write(path: Path, value: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.write_text(value)
