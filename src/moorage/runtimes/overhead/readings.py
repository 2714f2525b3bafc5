"""Readings of a probe pod: its memory and CPU time, from its cgroup here or from its node.

A source is chosen per pod: the pod's own cgroup where the node is this machine, else the node's
summary through the API. Source: kernel cgroup documents; kubelet `stats/v1alpha1`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

from moorage.api.clock import Clock, parse_time
from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.pods import Pod
from moorage.engine.cgroups.usage import UsageReader, total_usage
from moorage.linux.cgroups import Cgroups, directory_in, guests_outside, outside_cgroup
from moorage.linux.process import all_pids, arguments
from moorage.linux.process_memory import proportional_bytes
from moorage.runtimes.overhead.options import MeasurementError
from moorage.wire.client.node_summary import PodFigures, SummaryError, read_node_summary
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import Client

# Processes behind a pod on this machine: those in its cgroup, and the runtime's own outside it.
#
# What runs outside the pod's cgroup (the monitor of an OCI runtime, a containerd shim) is charged
# to no pod, but costs its node memory; it is found by the identities of the pod's containers in
# its command line. Memory is the proportional set size: pages that processes share count once in
# all. Source: proc(5), smaps_rollup; KEP-688 (overhead includes the shim).

_IDENTITY = re.compile(r"[0-9a-f]{32,64}")
_MOST_NAME = 64


class RuntimeProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of one program behind a pod; `memory_bytes` is their sum.

    `is_charged` says whether they are in the pod's cgroup.
    """

    program: str
    count: int
    memory_bytes: int
    is_charged: bool


def processes_behind(
    pod: Pod, cgroups: Cgroups, path: str, guest: str | None = None
) -> tuple[RuntimeProcesses, ...]:
    """Return the processes behind a pod whose cgroup has this path, by program. Blocks.

    `guest` is the cgroup of its virtual machine outside of that; its usage counts as the pod's.
    """
    mount = cgroups.mount_of("memory")
    if mount is None:
        return ()
    directory = directory_in(mount, path)
    charged = set(_pids_in(directory))
    if guest is not None:
        charged |= set(_pids_in(directory_in(mount, guest)))
    identities = identities_of(pod, cgroup_names(cgroups, path))
    found: list[tuple[int, str, bool]] = []
    for pid in all_pids():
        argv = arguments(pid)
        is_charged = pid in charged
        if argv is None or not (is_charged or is_about(argv, identities)):
            continue
        found.append((pid, program_of(argv), is_charged))
    return _grouped((program, proportional_bytes(pid), here) for pid, program, here in found)


def cgroup_names(cgroups: Cgroups, path: str) -> list[str]:
    """Return the names of the cgroups below one. Blocks."""
    mount = cgroups.mount_of("memory")
    if mount is None:
        return []
    directory = directory_in(mount, path)
    return [entry.name for entry in directory.glob("**/") if entry != directory]


def identities_of(pod: Pod, cgroup_names: Iterable[str]) -> frozenset[str]:
    """Return the identities of a pod's containers and sandbox that command lines name."""
    texts = [one.container_id for one in pod.status.container_statuses]
    texts += cgroup_names
    return frozenset(match for text in texts for match in _IDENTITY.findall(text))


def is_about(argv: Sequence[str], identities: frozenset[str]) -> bool:
    """Return whether a command line names one of the identities."""
    return any(match in identities for word in argv for match in _IDENTITY.findall(word))


def program_of(argv: Sequence[str]) -> str:
    """Return the name of a command line's program, of at most 64 characters."""
    words = argv[0].split() if argv else []
    return PurePosixPath(words[0]).name[:_MOST_NAME] if words else "(without a command line)"


def outside_bytes(processes: Iterable[RuntimeProcesses]) -> int:
    """Return the memory of processes that are not charged to the pod."""
    return sum(one.memory_bytes for one in processes if not one.is_charged)


def _grouped(found: Iterable[tuple[str, int | None, bool]]) -> tuple[RuntimeProcesses, ...]:
    counts: Counter[tuple[str, bool]] = Counter()
    sizes: Counter[tuple[str, bool]] = Counter()
    for program, size, is_charged in found:
        if size is not None:
            counts[program, is_charged] += 1
            sizes[program, is_charged] += size
    return tuple(
        RuntimeProcesses(
            program=program, count=count, memory_bytes=sizes[program, here], is_charged=here
        )
        for (program, here), count in sorted(counts.items())
    )


def _pids_in(directory: Path) -> Iterable[int]:
    for procs in (directory, *directory.glob("**/")):
        try:
            text = (procs / "cgroup.procs").read_text()
        except OSError:
            # The cgroup is gone, or its threads are managed one by one (EOPNOTSUPP).
            continue
        yield from map(int, text.split())


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DEEPEST = 8
_LEAST_STAMPED_S = 5.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's usage at a moment; `at_s` counts from any start. None is what was not measured.

    `containers_bytes` is the sum of its containers as the source has it.
    """

    at_s: float
    memory_bytes: int | None = None
    containers_bytes: int | None = None
    cpu_ns: int | None = None


class UsageSource(Protocol):
    """Source of a pod's usage."""

    name: str

    async def read(self, pod: Pod) -> Reading:
        """Return a reading. Raises MeasurementError, StatusError, UnreachableError."""
        ...


class SummarySource:
    """Usage from the summary of the pod's node, through the API server."""

    name = "summary"

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def read(self, pod: Pod) -> Reading:
        node = pod.spec.node_name
        try:
            figures = (await read_node_summary(self._client, node)).get(pod.metadata.uid)
        except SummaryError as error:
            raise MeasurementError(str(error)) from error
        except ForbiddenError as error:
            raise MeasurementError(
                f"the summary of node {node} is refused ({error.message}); measuring needs the "
                "right to `get nodes/proxy`"
            ) from error
        if figures is None:
            return Reading(at_s=self._clock.monotonic())
        return reading_of(figures, self._clock.monotonic())


def reading_of(figures: PodFigures, now_s: float) -> Reading:
    """Return the reading of a summary's figures, at the time that they name."""
    cpu, memory = figures.cpu, figures.memory
    containers = [one.memory.working_set_bytes for one in figures.containers or () if one.memory]
    known = [size for size in containers if size is not None]
    stamp = cpu.time if cpu is not None else None
    return Reading(
        at_s=now_s if stamp is None else parse_time(stamp).timestamp(),
        memory_bytes=None if memory is None else memory.working_set_bytes,
        containers_bytes=sum(known) if known else None,
        cpu_ns=None if cpu is None else cpu.usage_core_nano_seconds,
    )


class CgroupSource:
    """Usage from the pod's cgroup on this machine. Reading blocks for some system calls."""

    name = "cgroup"

    def __init__(self, cgroups: Cgroups, clock: Clock) -> None:
        self.cgroups = cgroups
        self._usage = UsageReader(cgroups)
        self._clock = clock
        self._paths: dict[str, str] = {}

    def path_of(self, uid: str) -> str | None:
        """Return the path of a pod's cgroup, None where this machine has none."""
        if uid not in self._paths:
            found = find_pod_cgroup(self.cgroups, uid)
            if found is None:
                return None
            self._paths[uid] = found
        return self._paths[uid]

    async def read(self, pod: Pod) -> Reading:
        path = self.path_of(pod.metadata.uid)
        now_s = self._clock.monotonic()
        if path is None:
            return Reading(at_s=now_s)
        paths = (path, *filter(None, (self.guest_of(pod),)))
        usage = total_usage(self._usage.usage(one) for one in paths)
        return Reading(at_s=now_s, memory_bytes=usage.working_set, cpu_ns=usage.cpu_ns)

    def guest_of(self, pod: Pod) -> str | None:
        """Return the cgroup of a pod's virtual machine outside the pod's, None without one.

        It is found by the identity of the pod's sandbox, which cgroups in the pod's name.
        """
        outside = guests_outside(self.cgroups)
        path = self.path_of(pod.metadata.uid) if outside else None
        if path is None:
            return None
        known = outside & identities_of(pod, cgroup_names(self.cgroups, path))
        return outside_cgroup(min(known)) if known else None


def find_pod_cgroup(cgroups: Cgroups, uid: str) -> str | None:
    """Return the path of a pod's cgroup in the hierarchy of memory, by either driver's name."""
    mount = cgroups.mount_of("memory")
    if mount is None or not uid:
        return None
    names = (f"pod{uid}", f"-pod{uid.replace('-', '_')}.slice")
    for directory in _directories(mount):
        if directory.name.endswith(names):
            return f"/{directory.relative_to(mount)}"
    return None


def _directories(root: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the directories below one, parents first; those that vanish meanwhile are skipped."""
    try:
        with os.scandir(root) as entries:
            children = [
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return
    yield from children
    if depth < _DEEPEST:
        for child in children:
            yield from _directories(child, depth + 1)


async def is_this_machine(client: Client, node: str) -> bool:
    """Return whether a node is this machine, by the kernel's identity of this boot.

    Raises StatusError, UnreachableError.
    """
    try:
        info = (await client.get(NODES, node)).status.node_info
        boot_id = (await asyncio.to_thread(_BOOT_ID.read_text)).strip()
    except (NotFoundError, FileNotFoundError):
        return False
    return bool(info.boot_id) and info.boot_id == boot_id


def peak_memory_bytes(readings: list[Reading]) -> int | None:
    """Return the most memory of the readings, None if none has it."""
    return max((one.memory_bytes for one in readings if one.memory_bytes is not None), default=None)


def cpu_milli(readings: list[Reading], *, is_stamped: bool) -> float | None:
    """Return the CPU that was used from the first to the last reading, in thousandths of one.

    Readings whose times are whole seconds (`is_stamped`) must be 5 s apart, or the error would
    exceed a fifth; None then, and where CPU time is not measured or went back.
    """
    timed = [one for one in readings if one.cpu_ns is not None]
    if len(timed) < 2:
        return None
    first, last = timed[0], timed[-1]
    elapsed_s = last.at_s - first.at_s
    used_ns = (last.cpu_ns or 0) - (first.cpu_ns or 0)
    if elapsed_s <= 0 or used_ns < 0 or (is_stamped and elapsed_s < _LEAST_STAMPED_S):
        return None
    return used_ns / elapsed_s / 1e6
