"""Samples: all that the statistics or metrics of a container or pod need, read at one time.

Everything blocks, so one thread reads a list of subjects in one go.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from moorage.api.clock import Clock
from moorage.engine.cgroups.files import DeviceUsage, read
from moorage.engine.cgroups.usage import (
    Accounts,
    PageUsage,
    Pressures,
    Usage,
    UsageReader,
    read_devices,
    read_huge_pages,
    read_pressures,
    total_usage,
)
from moorage.engine.stats.subjects import ContainerSubject, LayerUsage, SharedCgroup
from moorage.linux.cgroup_control import process_ids_below
from moorage.linux.cgroups import Cgroups, directory_in
from moorage.linux.network_devices import NetworkDevice
from moorage.wire.cri import pb

# Open files, sockets and threads of processes, from /proc.
#
# A process that exits while it is counted counts as nothing. Source: proc_pid_fd(5),
# proc_pid_task(5), proc_pid_limits(5).

_OPEN_FILES = re.compile(r"^Max open files +(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """The counts of all processes together. `open_files_limit` is the first one's soft limit."""

    processes: int = 0
    threads: int = 0
    descriptors: int = 0
    sockets: int = 0
    open_files_limit: int | None = None


def count_processes(pids: Iterable[int]) -> ProcessCounts:
    """Count the resources of processes. Blocks, for some microseconds each descriptor."""
    ordered = sorted(pids)
    counted = ((0, 0, 0), *map(_count, ordered))
    limit = _OPEN_FILES.search(read(f"/proc/{ordered[0]}/limits")) if ordered else None
    threads, descriptors, sockets = (sum(column) for column in zip(*counted, strict=True))
    return ProcessCounts(
        len(ordered), threads, descriptors, sockets, int(limit[1]) if limit else None
    )


def _count(pid: int) -> tuple[int, int, int]:
    directory = f"/proc/{pid}/fd"
    try:
        # A directory's link count is the number of its subdirectories plus two.
        threads = os.stat(f"/proc/{pid}/task").st_nlink - 2
        names = os.listdir(directory)
    except OSError:
        return 0, 0, 0
    return threads, len(names), sum(1 for name in names if _is_socket(f"{directory}/{name}"))


def _is_socket(link: str) -> bool:
    try:
        return os.readlink(link).startswith("socket:")
    except OSError:
        return False


_NS_PER_S = 1_000_000_000
_BLOCK_DEVICES = "/sys/dev/block"


@dataclass(frozen=True, slots=True)
class Sample:
    """A cgroup's usage: `at_ns` since the epoch, `ticked_ns` on a monotonic clock."""

    at_ns: int
    ticked_ns: int
    usage: Usage
    pressures: Pressures


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The file system of a writable layer; sizes in bytes."""

    device: str
    size: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The inputs of all metrics; empty where a pod has none."""

    sample: Sample
    accounts: Accounts
    devices: Sequence[tuple[str, DeviceUsage]] = ()
    pages: Sequence[PageUsage] = ()
    network: Sequence[NetworkDevice] = ()
    processes: ProcessCounts = field(default_factory=ProcessCounts)
    file_system: FileSystem | None = None
    layer: LayerUsage | None = None
    limits: pb.LinuxContainerResources | None = None
    started_at_ns: int = 0


class Sampler:
    """Reads the host's cgroups. Every call blocks."""

    def __init__(self, cgroups: Cgroups, clock: Clock) -> None:
        self._cgroups = cgroups
        self._clock = clock
        self._reader = UsageReader(cgroups)
        self._shares = CpuShares()

    def sample(self, path: str) -> Sample:
        """Return a cgroup's current usage."""
        return self._now(self._reader.usage(path), read_pressures(self._cgroups, path))

    def pod_sample(self, path: str, guest: str | None) -> Sample:
        """Return a pod's current usage, with its guest's outside of its cgroup.

        There are no limits then: those of the pod's cgroup do not bind the guest.
        """
        pod = self.sample(path)
        outside = Usage() if guest is None else self._reader.usage(guest)
        if outside == Usage():
            return pod
        return self._now(total_usage((pod.usage, outside)), pod.pressures)

    def container_sample(self, subject: ContainerSubject, counted: Usage | None) -> Sample:
        """Return a container's current usage.

        It is what the runtime `counted`, else its cgroup's, or its share of the pod's.
        """
        if counted is not None:
            return self._now(counted, Pressures())
        own = self.sample(subject.cgroup)
        if (shared := _shared(subject, own)) is None:
            return own
        usage = self.pod_sample(shared.path, shared.guest).usage
        cpu_ns = usage.cpu_ns
        if cpu_ns is not None:
            cpu_ns = self._shares.share(subject.id, cpu_ns, shared.containers)
        return self._now(share_of(usage, shared.containers, cpu_ns), Pressures())

    def total(self, samples: Iterable[Sample]) -> Sample:
        """Return the sum of several samples, as if read now."""
        return self._now(total_usage(sample.usage for sample in samples), Pressures())

    def container(
        self, subject: ContainerSubject, layer: LayerUsage | None, counted: Usage | None
    ) -> Readings:
        """Return all readings of a container; `counted` is as for `container_sample`."""
        path, sample = subject.cgroup, self.container_sample(subject, counted)
        return Readings(
            sample=sample,
            accounts=self._reader.accounts(path),
            devices=[
                (_device_name(device.major, device.minor), device)
                for device in read_devices(self._cgroups, path)
            ],
            pages=read_huge_pages(self._cgroups, path),
            processes=count_processes(self._process_ids(path)),
            file_system=_file_system(subject.layers),
            layer=layer,
            limits=subject.limits,
            started_at_ns=subject.started_at_ns,
        )

    def pod(
        self, path: str | None, network: Sequence[NetworkDevice], guest: str | None = None
    ) -> Readings:
        """Return the readings that exist only for a whole pod."""
        if path is None:
            return Readings(sample=self.total(()), accounts=Accounts(), network=network)
        accounts = self._reader.accounts(path)
        return Readings(sample=self.pod_sample(path, guest), accounts=accounts, network=network)

    def _process_ids(self, path: str) -> Iterable[int]:
        # A process is in every hierarchy; reading ten for each container would cost ten times.
        mount = self._cgroups.mount_of("memory") or self._cgroups.unified
        return () if mount is None else process_ids_below(directory_in(mount, path))

    def _now(self, usage: Usage, pressures: Pressures) -> Sample:
        at_ns = int(self._clock.now().timestamp() * _NS_PER_S)
        return Sample(at_ns, int(self._clock.monotonic() * _NS_PER_S), usage, pressures)


def _shared(subject: ContainerSubject, own: Sample) -> SharedCgroup | None:
    # A container that runs in its own cgroup has used some time there, if only to start.
    return None if own.usage.cpu_ns else subject.shared


def _file_system(directory: Path) -> FileSystem | None:
    try:
        file_system, number = os.statvfs(directory), os.stat(directory).st_dev
    except OSError:
        # The container was removed with its layer meanwhile.
        return None
    device = _device_name(os.major(number), os.minor(number))
    return FileSystem(
        device,
        file_system.f_blocks * file_system.f_frsize,
        file_system.f_files,
        file_system.f_ffree,
    )


def _device_name(major: int, minor: int) -> str:
    """Return `/dev/sda1`, or the numbers of a device without a file, as of a tmpfs."""
    try:
        link = os.readlink(f"{_BLOCK_DEVICES}/{major}:{minor}")
    except OSError:
        return f"{major}:{minor}"
    return f"/dev/{os.path.basename(link)}"


# Shares of containers in a cgroup that holds a pod's containers together.
#
# Where a pod has a kernel of its own (gVisor, virtual machines), its containers' processes are not
# on
# the host: only the whole pod's usage can be read. It is divided evenly, so the containers' sum is
# the pod's, which is what autoscalers and `kubectl top` add up.

_MOST_KEPT = 4096
_LIMITS = ("memory_limit", "swap_limit")


class CpuShares:
    """CPU time of each container, whose counters never fall when others come and go.

    What the group used between two readings is divided by the containers running at the second. The
    least recently read containers are evicted. Thread-safe.
    """

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def share(self, id_: str, used_ns: int, containers: int) -> int:
        """Return a container's CPU time when that of the group is `used_ns`; in nanoseconds."""
        with self._lock:
            last_ns, own_ns = self._kept.pop(id_, (0, 0))
            if used_ns < last_ns:
                # A counter that restarts belongs to another cgroup of the same name.
                last_ns, own_ns = 0, 0
            own_ns += (used_ns - last_ns) // containers
            self._kept[id_] = (used_ns, own_ns)
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        return own_ns


def share_of(usage: Usage, containers: int, cpu_ns: int | None) -> Usage:
    """Return a container's part of a group's usage, with its own CPU time; it has no limits."""
    values: dict[str, int | None] = {}
    for each in fields(Usage):
        value = getattr(usage, each.name)
        is_known = value is not None and each.name not in _LIMITS
        values[each.name] = value // containers if is_known else None
    return Usage(**{**values, "cpu_ns": cpu_ns})
