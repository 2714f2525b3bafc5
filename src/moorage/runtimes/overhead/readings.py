"""Readings of a probe pod: its memory and CPU time, from its cgroup here or from its node.

A source is chosen per pod: the pod's own cgroup where the node is this machine, else the node's
summary through the API. Source: kernel cgroup documents; kubelet `stats/v1alpha1`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from moorage.api.clock import Clock, parse_time
from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.pods import Pod
from moorage.engine.cgroups.usage import UsageReader, total_usage
from moorage.linux.cgroups import Cgroups
from moorage.linux.guest_cgroups import guests_outside, outside_cgroup
from moorage.runtimes.overhead.errors import MeasurementError
from moorage.runtimes.overhead.processes import cgroup_names, identities_of
from moorage.wire.client.node_summary import PodFigures, SummaryError, read_node_summary
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import Client

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
