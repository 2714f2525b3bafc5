"""Cgroup resource usage, from version 1 or version 2.

A table maps each figure to the files that may hold it, on either version; a reader keeps the part
that fits the host. `Usage` has what statistics read often, `Accounts` what only metrics need. A
figure that the host does not record is None. Source: kernel cgroup-v1 documents (cpuacct, memory,
pids), cgroup-v2 document.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from moorage.engine.cgroups.files import (
    DeviceUsage,
    Pressure,
    devices_v1,
    devices_v2,
    number,
    numbers,
    pressure,
    read,
)
from moorage.engine.handlers.adapters import TaskUsage
from moorage.linux.cgroup_control import files_below, read_text
from moorage.linux.cgroups import Cgroups, Layout, directory_in

# Cgroup pressure, block device I/O and huge pages.
#
# Only version 2 measures pressure. On a hybrid the runtime may have created the same cgroup
# there; it counts if it holds the processes. Every call blocks for some system calls. Source:
# kernel cgroup-v2 document; cgroup-v1 blkio and hugetlb documents.

# Pairs of files that version 1 may have, recursive ones first.
_BLKIO = (
    ("throttle.io_service_bytes_recursive", "throttle.io_serviced_recursive"),
    ("throttle.io_service_bytes", "throttle.io_serviced"),
)
_PAGES = re.compile(r"hugetlb\.(\d+[KMG]B)\.(?:usage_in_bytes|current)$")
# Only version 1 records the maximum usage.
_PAGES_V1 = ("usage_in_bytes", "max_usage_in_bytes")
_PAGES_V2 = ("current", "")


@dataclass(frozen=True, slots=True)
class Pressures:
    """Pressure of each resource; None where it is not measured."""

    cpu: Pressure | None = None
    memory: Pressure | None = None
    io: Pressure | None = None


@dataclass(frozen=True, slots=True)
class PageUsage:
    """Huge pages of one size, named as by the kernel (`2MB`); in bytes."""

    size: str
    used: int
    peak: int | None = None


def read_pressures(cgroups: Cgroups, path: str) -> Pressures:
    """Return a cgroup's pressure."""
    if cgroups.unified is None:
        return Pressures()
    directory = directory_in(cgroups.unified, path)
    if cgroups.layout is Layout.HYBRID and not _has_processes(str(directory)):
        return Pressures()
    pressures = (pressure(read(f"{directory}/{name}.pressure")) for name in ("cpu", "memory", "io"))
    return Pressures(*pressures)


def read_devices(cgroups: Cgroups, path: str) -> tuple[DeviceUsage, ...]:
    """Return a cgroup's block device I/O."""
    blkio = cgroups.v1.get("blkio")
    if blkio is not None:
        directory = directory_in(blkio, path)
        texts = ([read(f"{directory}/blkio.{name}") for name in pair] for pair in _BLKIO)
        return next((devices_v1(*pair) for pair in texts if any(pair)), ())
    if cgroups.unified is None or "io" not in cgroups.v2:
        return ()
    return devices_v2(read(f"{directory_in(cgroups.unified, path)}/io.stat"))


def read_huge_pages(cgroups: Cgroups, path: str) -> tuple[PageUsage, ...]:
    """Return a cgroup's huge page usage by page size."""
    mount = cgroups.mount_of("hugetlb")
    if mount is None:
        return ()
    directory = directory_in(mount, path)
    used, peak = _PAGES_V1 if "hugetlb" in cgroups.v1 else _PAGES_V2
    pages = []
    for size in _page_sizes(str(directory)):
        bytes_used = number(read(f"{directory}/hugetlb.{size}.{used}"))
        most = number(read(f"{directory}/hugetlb.{size}.{peak}")) if peak else None
        if bytes_used is not None:
            pages.append(PageUsage(size, bytes_used, most))
    return tuple(pages)


def _has_processes(directory: str) -> bool:
    return numbers(read(f"{directory}/cgroup.events")).get("populated") == 1


def _page_sizes(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    matches = map(_PAGES.match, os.listdir(directory))
    return sorted({match[1] for match in matches if match is not None})


Figures = TypeVar("Figures", bound="Usage | Accounts")
_LIMITS = ("memory_limit", "swap_limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(TaskUsage):
    """Counts of cgroups; None where the host records none."""

    @property
    def working_set(self) -> int | None:
        """Memory without the file pages that were not used recently, which can be reclaimed at
        once.
        """
        if self.memory is None:
            return None
        return max(self.memory - (self.inactive_file or 0), 0)

    @property
    def available(self) -> int | None:
        """Memory left below the cgroup's own limit, None without one. Source: CRI
        `available_bytes`.
        """
        if self.memory_limit is None or self.working_set is None:
            return None
        return max(self.memory_limit - self.working_set, 0)


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of several cgroups' usage, without limits."""
    every = tuple(usages)
    values: dict[str, int | None] = {}
    for field in fields(Usage):
        present = [value for usage in every if (value := getattr(usage, field.name)) is not None]
        values[field.name] = sum(present) if present and field.name not in _LIMITS else None
    return Usage(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Time in nanoseconds, memory in bytes, the rest in events."""

    user_ns: int | None = None
    system_ns: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    cache: int | None = None
    mapped_file: int | None = None
    kernel: int | None = None
    peak: int | None = None
    failures: int | None = None
    reservation: int | None = None
    pids_limit: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The place of a figure: a file's only number, or the one after a key.

    `controller` is empty for files of every version 2 cgroup. `scale` converts to the figure's
    unit.
    """

    controller: str
    file: str
    key: str = ""
    scale: int = 1
    is_v2: bool = False


def _v1(controller: str, file: str, key: str = "", scale: int = 1) -> Source:
    return Source(controller, f"{controller}.{file}", key, scale)


def _v2(file: str, key: str = "", scale: int = 1, controller: str | None = None) -> Source:
    named = file.partition(".")[0] if controller is None else controller
    return Source(named, file, key, scale, is_v2=True)


USAGE_SOURCES: Mapping[str, tuple[Source, ...]] = {
    # Version 2 counts CPU time in every cgroup, even without its cpu controller.
    "cpu_ns": (_v1("cpuacct", "usage"), _v2("cpu.stat", "usage_usec", 1000, "")),
    "memory": (_v1("memory", "usage_in_bytes"), _v2("memory.current")),
    "inactive_file": (
        _v1("memory", "stat", "total_inactive_file"),
        _v2("memory.stat", "inactive_file"),
    ),
    "rss": (_v1("memory", "stat", "total_rss"), _v2("memory.stat", "anon")),
    "page_faults": (_v1("memory", "stat", "total_pgfault"), _v2("memory.stat", "pgfault")),
    "major_page_faults": (
        _v1("memory", "stat", "total_pgmajfault"),
        _v2("memory.stat", "pgmajfault"),
    ),
    "memory_limit": (_v1("memory", "limit_in_bytes"), _v2("memory.max")),
    "swap": (_v1("memory", "stat", "total_swap"), _v2("memory.swap.current")),
    "swap_limit": (_v1("memory", "memsw.limit_in_bytes"), _v2("memory.swap.max")),
    "pids": (_v1("pids", "current"), _v2("pids.current")),
}
ACCOUNT_SOURCES: Mapping[str, tuple[Source, ...]] = {
    "user_ns": (_v1("cpuacct", "usage_user"), _v2("cpu.stat", "user_usec", 1000, "")),
    "system_ns": (_v1("cpuacct", "usage_sys"), _v2("cpu.stat", "system_usec", 1000, "")),
    "periods": (_v1("cpu", "stat", "nr_periods"), _v2("cpu.stat", "nr_periods")),
    "throttled_periods": (_v1("cpu", "stat", "nr_throttled"), _v2("cpu.stat", "nr_throttled")),
    "throttled_ns": (
        _v1("cpu", "stat", "throttled_time"),
        _v2("cpu.stat", "throttled_usec", 1000),
    ),
    "cache": (_v1("memory", "stat", "total_cache"), _v2("memory.stat", "file")),
    "mapped_file": (_v1("memory", "stat", "total_mapped_file"), _v2("memory.stat", "file_mapped")),
    "kernel": (_v1("memory", "kmem.usage_in_bytes"), _v2("memory.stat", "kernel")),
    "peak": (_v1("memory", "max_usage_in_bytes"), _v2("memory.peak")),
    "failures": (_v1("memory", "failcnt"), _v2("memory.events", "max")),
    "reservation": (_v1("memory", "soft_limit_in_bytes"), _v2("memory.low")),
    "pids_limit": (_v1("pids", "max"), _v2("pids.max")),
    "oom_kills": (_v1("memory", "oom_control", "oom_kill"), _v2("memory.events", "oom_kill")),
}


class UsageReader:
    """Reads the host's cgroups. Every call blocks, for about 10 µs a file."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._usage = _Plan(cgroups, Usage, USAGE_SOURCES)
        self._accounts = _Plan(cgroups, Accounts, ACCOUNT_SOURCES)
        self._subgroup_usage = _Plan(cgroups, Usage, _of_one_cgroup(USAGE_SOURCES))
        self._subgroup_accounts = _Plan(cgroups, Accounts, _of_one_cgroup(ACCOUNT_SOURCES))

    def usage(self, path: str) -> Usage:
        """Return the usage of a cgroup and its descendants; all None without the cgroup.

        Limits are those in force for the container of a systemd scope, wherever the runtime set
        them.
        """
        usage = self._with_subgroup(path, self._usage, self._subgroup_usage)
        if self._cgroups.mount_of("memory") == self._cgroups.unified:
            return usage
        return _with_swap_alone(usage)

    def accounts(self, path: str) -> Accounts:
        """Return the remaining figures of a cgroup; limits as those of `usage`."""
        return self._with_subgroup(path, self._accounts, self._subgroup_accounts)

    def oom_kills(self, path: str) -> int | None:
        """Return how many processes were killed for memory in a cgroup and its descendants.

        None when the kernel does not count them.
        """
        memory = self._cgroups.mount_of("memory")
        if memory is None:
            return None
        directory = directory_in(memory, path)
        if memory == self._cgroups.unified:
            return self._accounts.figures(path).oom_kills
        # Version 1 counts each cgroup separately.
        counts = [
            numbers(_text(opened)).get("oom_kill")
            for opened in files_below(directory, "memory.oom_control")
        ]
        counted = [count for count in counts if count is not None]
        return sum(counted) if counted else None

    def lasting_oom_kills(self, path: str) -> int | None:
        """Return `oom_kills` with those of descendants that were removed.

        None with version 1, where counts go with their cgroups. Source: cgroup-v2
        `memory.events`, whose counts are hierarchical.
        """
        if self._cgroups.mount_of("memory") != self._cgroups.unified:
            return None
        return self.oom_kills(path)

    def _with_subgroup(
        self, path: str, plan: _Plan[Figures], subgroup_plan: _Plan[Figures]
    ) -> Figures:
        figures = plan.figures(path)
        subgroup = container_subgroup(self._cgroups, path)
        if subgroup is None:
            return figures
        inner = subgroup_plan.figures(subgroup)
        values: dict[str, int | None] = {}
        for name in (field.name for field in fields(figures)):
            own = getattr(figures, name)
            is_joined = name in NOT_RECURSIVE
            values[name] = joined(name, own, getattr(inner, name)) if is_joined else own
        return type(figures)(**values)


def _of_one_cgroup(table: Mapping[str, tuple[Source, ...]]) -> Mapping[str, tuple[Source, ...]]:
    return {name: sources if name in NOT_RECURSIVE else () for name, sources in table.items()}


def _text(opened: int) -> str:
    """Return the content of an open cgroup file, empty if the cgroup is gone."""
    try:
        return read_text(opened)
    except OSError:
        return ""


class _Plan(Generic[Figures]):
    """The part of a table that fits a host, by file."""

    def __init__(
        self, cgroups: Cgroups, shape: type[Figures], table: Mapping[str, tuple[Source, ...]]
    ) -> None:
        self._shape = shape
        self._files: dict[tuple[str, str], list[tuple[str, Source]]] = {}
        for field in fields(shape):
            sources = [
                (mount, candidate)
                for candidate in table[field.name]
                if (mount := _mount(cgroups, candidate))
            ]
            if sources:
                mount, source = sources[0]
                self._files.setdefault((mount, source.file), []).append((field.name, source))

    def figures(self, path: str) -> Figures:
        values: dict[str, int | None] = {}
        for (mount, file), entries in self._files.items():
            text = read(f"{mount}{path}/{file}")
            keyed = numbers(text) if entries[0][1].key else {"": number(text)}
            for name, source in entries:
                value = keyed.get(source.key)
                values[name] = None if value is None else value * source.scale
        return self._shape(**values)


def _mount(cgroups: Cgroups, source: Source) -> str:
    if not source.is_v2:
        mount = cgroups.v1.get(source.controller)
    elif not source.controller or source.controller in cgroups.v2:
        mount = cgroups.unified
    else:
        mount = None
    return str(mount) if mount else ""


def _with_swap_alone(usage: Usage) -> Usage:
    """Return the usage with the limit of swap alone; version 1 limits memory and swap together."""
    limit, both = usage.memory_limit, usage.swap_limit
    alone = None if limit is None or both is None else max(both - limit, 0)
    return Usage(
        **{
            field.name: alone if field.name == "swap_limit" else getattr(usage, field.name)
            for field in fields(usage)
        }
    )


# Scope cgroups of systemd: crun's cgroup in a container's scope, and the figures that it adds.
#
# systemd owns a scope's files: a `daemon-reload` resets limits that others wrote there. crun leaves
# them alone and writes into a cgroup in the scope, which is delegated. The scope's usage includes
# that cgroup's; its limits, and the counts of a CPU quota, do not. Pure, except
# `container_subgroup`. Source: crun(1) `run.oci.systemd.subgroup`; kernel cgroup-v2 document.

_SUBGROUP = "container"

NOT_RECURSIVE: Mapping[str, Callable[[int, int], int]] = {
    # A limit holds for what is below it, so the lowest is in force.
    "memory_limit": min,
    "swap_limit": min,
    "pids_limit": min,
    "reservation": max,
    "periods": int.__add__,
    "throttled_periods": int.__add__,
    "throttled_ns": int.__add__,
}
"""Figures that a cgroup has without those below it, and how two cgroups' become one."""


def container_subgroup(cgroups: Cgroups, path: str) -> str | None:
    """Return the path of crun's cgroup in a scope, None if there is none. Takes a system call."""
    if not path.endswith(".scope") or cgroups.unified is None:
        return None
    subgroup = f"{path}/{_SUBGROUP}"
    return subgroup if os.path.isdir(f"{cgroups.unified}{subgroup}") else None


def joined(name: str, outer: int | None, inner: int | None) -> int | None:
    """Return a figure of a scope and of the cgroup in it as that of the container."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return NOT_RECURSIVE[name](outer, inner)
