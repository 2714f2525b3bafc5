"""Cgroup tree below one root: creates, configures, queries and removes cgroups on this host.

`values` decides which files get which values. Controllers that the host lacks are skipped. Every
call blocks, possibly on kernel locks.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from moorage.api import quantity
from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.qos import BEST_EFFORT, BURSTABLE
from moorage.linux.cgroup_control import CgroupError, make_cgroup
from moorage.linux.cgroup_removal import kill_and_remove_cgroup_blocking
from moorage.linux.cgroups import Cgroups, Layout, directory_in, outside_cgroup
from moorage.node.cgroups.values import (
    KUBEPODS,
    QOS_DIRECTORIES,
    V1_LIMITS,
    V2_LIMITS,
    CgroupValues,
    burstable_values,
    limits_in,
    v1_files,
    v2_files,
)
from moorage.node.config.container import MIN_SHARES, shares
from moorage.node.notifier import Notifier

# Usage of a pod's cgroup: what the whole pod uses, the runtime's own processes included.
#
# The containers' usage is the engine's to report; the difference is what the sandbox costs. Source:
# cgroup v2 `cpu.stat`, `memory.current`, `memory.stat`; v1 `cpuacct`, `memory`; cAdvisor.

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


__all__ = ["CgroupError", "CgroupTree"]

log = Log(__name__)

# The limit file of a page size on version 1 and on version 2; other hugetlb files do not match.
_PAGE_FILE = re.compile(r"hugetlb\.(\d+[KMG]B)\.(?:limit_in_bytes|max)$")


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """The cgroup hierarchies below one root, such as `/moorage`."""

    cgroups: Cgroups
    root: str

    def path(self, directory: str) -> str:
        """Return a cgroup's path in the form engines expect: absolute, without the mount point."""
        return f"{self.root.rstrip('/')}/{directory}"

    def ensure(self, directory: str, values: CgroupValues) -> None:
        """Create a cgroup and its parents, and write its values. Raises CgroupError."""
        path = self.path(directory)
        make_cgroup(self.cgroups, path)
        try:
            if self.cgroups.layout is Layout.V2:
                self._set_v2(path, values)
            else:
                self._set_v1(path, values)
        except OSError as error:
            raise CgroupError(
                error.errno,
                f"failed to set cgroup {path}: {error.strerror} ({error.filename})",
            ) from error

    def read(self, directory: str) -> CgroupValues | None:
        """Return a cgroup's limits of CPU and memory; None if it does not exist.

        Raises CgroupError.
        """
        path = self.path(directory)
        is_v2 = self.cgroups.layout is Layout.V2
        files = {}
        for controller, name in V2_LIMITS if is_v2 else V1_LIMITS:
            mount = self.cgroups.unified if is_v2 else self.cgroups.v1.get(controller)
            if mount is not None:
                files[name] = _read(directory_in(mount, path) / name)
        present = {name: content for name, content in files.items() if content is not None}
        if not present:
            return None
        return limits_in(present)

    def memory_usage_bytes(self, directory: str) -> int | None:
        """Return the memory that a cgroup uses, caches included; None without that file."""
        is_v2 = self.cgroups.layout is Layout.V2
        mount = self.cgroups.unified if is_v2 else self.cgroups.v1.get("memory")
        if mount is None:
            return None
        name = "memory.current" if is_v2 else "memory.usage_in_bytes"
        content = _read(directory_in(mount, self.path(directory)) / name)
        return None if content is None else int(content)

    def exists(self, directory: str) -> bool:
        """Return whether the cgroup exists, in the unified or else the memory hierarchy."""
        is_v2 = self.cgroups.layout is Layout.V2
        first = self.cgroups.unified if is_v2 else self.cgroups.v1.get("memory")
        return first is None or directory_in(first, self.path(directory)).is_dir()

    def remove(self, directory: str) -> None:
        """Kill every process in a cgroup and remove it with its descendants. Raises CgroupError."""
        kill_and_remove_cgroup_blocking(self.cgroups, self.path(directory))

    def _set_v1(self, path: str, values: CgroupValues) -> None:
        hugetlb = self.cgroups.v1.get("hugetlb")
        sizes = _page_sizes(directory_in(hugetlb, path)) if hugetlb is not None else ()
        for controller, file, content in v1_files(values, sizes):
            mount = self.cgroups.v1.get(controller)
            if mount is not None:
                _write(directory_in(mount, path) / file, content)

    def _set_v2(self, path: str, values: CgroupValues) -> None:
        if self.cgroups.unified is None:
            return
        directory = directory_in(self.cgroups.unified, path)
        present = set((directory / "cgroup.controllers").read_text().split())
        for controller, file, content in v2_files(values, _page_sizes(directory)):
            if controller in present:
                _write(directory / file, content)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except FileNotFoundError:
        log.debug("cgroup file missing", path=path)


def _read(path: Path) -> str | None:
    """Return a file's content, None without it. Raises CgroupError."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CgroupError(error.errno, f"failed to read {path}: {error.strerror}") from error


def _page_sizes(place: Path) -> list[str]:
    """Return the huge page sizes of a cgroup in the kernel's spelling: `2MB`, `1GB`."""
    matches = {_PAGE_FILE.match(entry.name) for entry in place.glob("hugetlb.*")}
    return sorted({match[1] for match in matches if match is not None})


# QoS cgroups: the parent of all pods' cgroups, and the parents of burstable and best-effort pods.
#
# All pods together are limited to the node's allocatable memory and process IDs. Burstable pods get
# CPU shares by their requests, best-effort pods the minimum. Source: kubelet
# `qos_container_manager_linux.go`, `node_container_manager_linux.go`.

_PERIOD_S = 60.0


class QosTree:
    """Maintains the parent cgroups. `run()` blocks until cancelled."""

    def __init__(
        self,
        tree: CgroupTree,
        clock: Clock,
        *,
        allocatable: Mapping[str, str],
        pids_limit: int | None = None,
        pods: Callable[[], Iterable[Pod]],
    ) -> None:
        self._tree = tree
        self._allocatable = allocatable
        self._pids_limit = pids_limit
        self._pods = pods
        self._burstable: CgroupValues | None = None
        self._wake = Notifier(clock)

    def pods_changed(self) -> None:
        """Schedule an update of the CPU shares after a pod was added or removed."""
        self._wake.call()

    async def prepare(self) -> None:
        """Create the parent cgroups, before the first pod. Raises CgroupError."""
        await asyncio.to_thread(self._make)

    async def run(self) -> None:
        while True:
            try:
                await self.weigh()
            except CgroupError as error:
                log.warning("burstable weight not set", error=error)
            await self._wake.wait(_PERIOD_S)

    async def weigh(self) -> None:
        """Set the burstable cgroup's CPU shares from the active pods. Raises CgroupError."""
        values = burstable_values(self._pods())
        if values != self._burstable:
            directory = _directory(BURSTABLE)
            await asyncio.to_thread(self._tree.ensure, directory, values)
            self._burstable = values

    def _make(self) -> None:
        cpu = quantity.parse(self._allocatable.get("cpu", "0"))
        memory = quantity.parse(self._allocatable.get("memory", "0"))
        whole = CgroupValues(
            shares=shares(cpu.milli),
            memory_bytes=memory.value or None,
            pids=self._pids_limit,
        )
        self._tree.ensure(KUBEPODS, whole)
        if not self._tree.exists(_directory(BURSTABLE)):
            # An existing cgroup has running pods: keep its shares until the pods are listed.
            self._tree.ensure(_directory(BURSTABLE), burstable_values(()))
        self._tree.ensure(_directory(BEST_EFFORT), CgroupValues(shares=MIN_SHARES))


def _directory(qos_class: str) -> str:
    return f"{KUBEPODS}/{QOS_DIRECTORIES[qos_class]}"
