"""A container's log: how fast it is written, and its new file after a rotation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.engine.cgroups import container_cgroup
from moorage.engine.context import EngineContext
from moorage.engine.handlers.adapters.conmon import monitor_pid
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.inventory import Container, Inventory
from moorage.engine.paths import EnginePaths
from moorage.linux.cgroup_control import (
    CgroupError,
    enter_cpu_cgroup,
    make_cpu_cgroup,
    remove_if_empty,
)
from moorage.linux.cgroups import Cgroups
from moorage.linux.process_io import written_bytes

# Log rate limit: a container that floods its log must exhaust neither disk nor CPU.
#
# conmon copies output as fast as a container writes it (`yes` makes 280 MB of log a second), in a
# process that no pod's cgroup limits. Once a second the limiter reads how much each conmon has
# written. One that exceeds the limit moves into a cgroup with a small CPU quota, which all such
# monitors of a cgroup root share. It stays there until it exits, even without the engine. No log
# line is lost: the container blocks in write(2).
#
# Only for containers with a conmon: a shim's output passes through the engine, which limits it
# itself (`handlers.adapters.fifo_streams`). Source: cgroup-v2 `cpu.max`, cgroup-v1
# `cpu.cfs_quota_us`; proc_pid_io(5).

log = Log(__name__)

LIMIT_BYTES_PER_S = 16 * 1024 * 1024
"""A monitor above this rate is throttled."""

_PERIOD_S = 1.0
_CGROUP = "throttled-monitors"
# A tenth of a CPU writes about 25 MB of log a second.
_QUOTA_US, _QUOTA_PERIOD_US = 10_000, 100_000


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    written_bytes: int


class LogRateLimiter:
    """Throttles the monitors of an engine's containers. `run()` returns only by cancellation."""

    def __init__(
        self,
        inventory: Inventory,
        paths: EnginePaths,
        cgroups: Cgroups,
        clock: Clock,
        monitor_pid: Callable[[Path], int | None] = monitor_pid,
        written_bytes: Callable[[int], int | None] = written_bytes,
    ) -> None:
        self._monitor_pid = monitor_pid
        self._count_written = written_bytes
        self._inventory = inventory
        self._paths = paths
        self._cgroups = cgroups
        self._clock = clock
        self._monitors: dict[str, int] = {}
        """Process ids by container, for reading only: a monitor is verified before it is throttled.
        """
        self._readings: dict[str, _Reading] = {}
        self._throttled: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Read every monitor once and throttle those above the limit."""
        running = {
            container.id: container
            for container in self._inventory.containers
            if container.is_running
        }
        await self._forget_ended(running.keys())
        watched = [
            container
            for container in running.values()
            if container.id not in self._throttled and _has_own_cgroup(container)
        ]
        if watched:
            await asyncio.to_thread(self._check, watched)

    async def _forget_ended(self, running: Iterable[str]) -> None:
        alive = set(running)
        self._readings = {key: reading for key, reading in self._readings.items() if key in alive}
        self._monitors = {key: pid for key, pid in self._monitors.items() if key in alive}
        paths = set(self._throttled.values())
        self._throttled = {key: path for key, path in self._throttled.items() if key in alive}
        for path in paths - set(self._throttled.values()):
            await asyncio.to_thread(remove_if_empty, self._cgroups, path)

    def _check(self, containers: Iterable[Container]) -> None:
        """Blocks."""
        for container in containers:
            try:
                written = self._written_bytes(container)
            except OSError:
                # It exited between the two reads, or its process id was reused.
                self._monitors.pop(container.id, None)
                continue
            if written is None:
                continue
            now = _Reading(self._clock.monotonic(), written)
            before = self._readings.get(container.id)
            self._readings[container.id] = now
            if before is not None and _exceeds_limit(before, now):
                self._throttle(container)

    def _written_bytes(self, container: Container) -> int | None:
        """Return how much the container's monitor has written, None without one. Raises OSError."""
        pid = self._monitors.get(container.id)
        if pid is None:
            pid = self._monitor_pid(self._paths.bundle(container.id))
            if pid is None:
                return None
            self._monitors[container.id] = pid
        return self._count_written(pid)

    def _throttle(self, container: Container) -> None:
        path = _throttled_cgroup(container)
        try:
            pid = self._monitor_pid(self._paths.bundle(container.id))
        except OSError:
            pid = None
        if pid is None or pid != self._monitors.pop(container.id):
            return
        try:
            make_cpu_cgroup(self._cgroups, path, _QUOTA_US, _QUOTA_PERIOD_US)
            enter_cpu_cgroup(self._cgroups, path, pid)
        except CgroupError as error:
            log.warning("log rate not limited", container=container.id, reason=error.strerror)
            return
        self._throttled[container.id] = path
        log.warning(
            "log rate limited: the container writes more than "
            f"{LIMIT_BYTES_PER_S // 2**20} MiB of log a second",
            container=container.id,
            name=container.config.metadata.name,
        )


def _exceeds_limit(before: _Reading, now: _Reading) -> bool:
    passed_s = now.at_s - before.at_s
    return passed_s > 0 and now.written_bytes - before.written_bytes > LIMIT_BYTES_PER_S * passed_s


def _has_own_cgroup(container: Container) -> bool:
    """Return whether the monitor may be moved: systemd owns the cgroups below its slices."""
    is_cgroupfs = container.sandbox.cgroup_driver is CgroupDriver.CGROUPFS
    return is_cgroupfs and bool(container.record.log_path)


def _throttled_cgroup(container: Container) -> str:
    """Return the cgroup of throttled monitors, in the first directory of the pods' cgroup path."""
    parent = container.sandbox.config.linux.cgroup_parent
    own = container_cgroup(CgroupDriver.CGROUPFS, parent, container.id)
    return str(PurePosixPath("/", PurePosixPath(own.path).parts[1], _CGROUP))


# ReopenContainerLog: reopen a running container's log file after its rotation.
#
# Source: CRI `ReopenContainerLog`.


async def reopen_container_log(context: EngineContext, container_id: str) -> None:
    """Reopen the log. Raises NotFoundError, PreconditionError unless it runs, AdapterError."""
    container = context.inventory.find_running(container_id)
    await context.adapter(container.sandbox).reopen_log(container.task(context.paths))
