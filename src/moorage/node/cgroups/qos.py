"""QoS cgroups: the parent of all pods' cgroups, and the parents of burstable and best-effort pods.

All pods together are limited to the node's allocatable memory and process IDs. Burstable pods get
CPU shares by their requests, best-effort pods the minimum. Source: kubelet
`qos_container_manager_linux.go`, `node_container_manager_linux.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from moorage.api import quantity
from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.qos import BEST_EFFORT, BURSTABLE
from moorage.node.cgroups.tree import CgroupError, CgroupTree
from moorage.node.cgroups.values import KUBEPODS, QOS_DIRECTORIES, CgroupValues, burstable_values
from moorage.node.config.resources import MIN_SHARES, shares
from moorage.node.notifier import Notifier

log = Log(__name__)

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
