"""Node pressure from a look to an evicted pod: what is freed, who goes, and what is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.api.pods import Pod
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.trees import DiskUse
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.cgroups.values import pod_directory
from moorage.node.garbage.eviction import PressureKeeper, PressureSources, disk_use_of
from moorage.node.garbage.storage import PodStorage
from moorage.node.machine.pressure import NodePressure
from moorage.node.metrics import Metrics
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.pod_facts.sources import is_critical
from moorage.node.pressure.ranking import ContainerUse
from moorage.node.pressure.thresholds import EvictionOptions, Observation, Observations
from moorage.node.status.inputs import TerminationReason
from moorage.wire.cri import pb
from tests import cgroup_trees
from tests.clocks import FakeClock, settle
from tests.node.objects import a_pod, wire_container

MIB = 1 << 20


class Worker:
    """A pod that ends when the test says so."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.uid = pod, pod.metadata.uid
        self.is_live = True
        self.terminations: list[tuple[TerminationReason, int]] = []
        self.over = asyncio.Event()

    def evict(self, termination: TerminationReason, *, grace_s: int, annotations: Any) -> bool:
        if is_critical(self.pod) or not self.is_live:
            return False
        assert annotations is not None
        self.is_live = False
        self.terminations.append((termination, grace_s))
        return True

    async def wait_over(self) -> None:
        await self.over.wait()


class Node:
    """A node in memory: its supply, its pods, and what was done, in order."""

    def __init__(self, root: Path, *pods: Pod, **options: Any) -> None:
        self.workers = [Worker(pod) for pod in pods]
        self.supply: dict[str, Observation] = {}
        self.freed: dict[str, Observation] = {}
        self.violators: list[Any] = []
        self.done: list[str] = []
        self.is_apart = False
        self.layers_of: dict[str, int] = {}
        self.tree = CgroupTree(Cgroups(Layout.V2, unified=root, v2=("memory", "pids")), "/m")
        self.pressure, self.metrics, self.clock = NodePressure(), Metrics(), FakeClock()
        node: Any = self
        self.keeper = PressureKeeper(
            options=EvictionOptions(**options),
            sources=PressureSources(
                gauges=node, engine=node, meter=node, limits=node, containers=node, images=node
            ),
            pressure=self.pressure,
            workers=lambda: node.workers,
            report=lambda resource: self.done.append(f"report {resource}"),
            metrics=self.metrics,
            clock=self.clock,
        )

    def use(self, uid: str, *, memory: int = 0, processes: int = 0) -> None:
        """Put a pod's cgroup on the disk."""
        pod = next(worker.pod for worker in self.workers if worker.uid == uid)
        directory = self.tree.cgroups.unified
        assert directory is not None
        place = directory / self.tree.path(pod_directory(pod)).lstrip("/")
        place.mkdir(parents=True)
        for name, text in (
            ("memory.current", memory), ("memory.stat", ""), ("cpu.stat", "usage_usec 1"),
            ("pids.current", processes),
        ):  # fmt: skip
            (place / name).write_text(str(text))

    def evicted(self) -> list[str]:
        return [worker.uid for worker in self.workers if worker.terminations]

    # Gauges

    def read(self, image_disk: Path | None) -> Observations:
        assert image_disk == Path("/images")
        return dict(self.supply)

    def has_image_disk(self, image_disk: Path | None) -> bool:
        del image_disk
        return self.is_apart

    # Collectors

    async def place(self) -> Path:
        return Path("/images")

    async def collect_all(self) -> None:
        self.done.append("containers")

    async def remove_unused(self) -> None:
        self.done.append("images")
        self.supply |= self.freed

    # Limits, meter and engine

    async def check(self) -> list[Any]:
        return self.violators

    async def layers(self) -> dict[str, int]:
        return self.layers_of

    async def pod_files(self, uid: str) -> frozenset[Any]:
        del uid
        return frozenset()

    def measure(self, pod: Pod, layers: Any, files: Any) -> PodStorage:
        del files
        return PodStorage(layers={"app": DiskUse(layers[pod.metadata.uid], 1)})

    async def sandbox_stats(self) -> Sequence[pb.PodSandboxStats]:
        return [
            pb.PodSandboxStats(
                attributes=pb.PodSandboxAttributes(
                    id=f"s-{worker.uid}", metadata=pb.PodSandboxMetadata(uid=worker.uid)
                )
            )
            for worker in self.workers
        ]

    async def container_stats(self) -> Sequence[pb.ContainerStats]:
        stats = []
        for worker in self.workers:
            one = pb.ContainerStats()
            one.attributes.labels[POD_UID] = worker.uid
            one.attributes.metadata.name = "app"
            one.memory.working_set_bytes.value = 7 * MIB
            stats.append(one)
        return stats


def pod(uid: str, memory: str = "", **spec: Any) -> Pod:
    requests = {"memory": memory} if memory else {}
    container = wire_container(resources={"requests": requests})
    return a_pod(container, name=uid, meta={"uid": uid}, **spec)


MEMORY_LOW = {"memory.available": Observation(90 * MIB, 1000 * MIB)}
DISK_LOW = {"nodefs.available": Observation(5, 100)}
DISK_GOOD = {"nodefs.available": Observation(50, 100)}


async def test_with_enough_of_everything_nothing_happens(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"))
    node.supply = dict(DISK_GOOD)
    assert await node.keeper.check() == []
    assert (node.done, node.pressure.conditions) == ([], ())


async def test_memory_pressure_evicts_the_pod_beyond_its_request(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a", "50Mi"), pod("b", "5Mi"), pod("c", "1Mi", priority=9))
    node.supply = dict(MEMORY_LOW)
    for uid, used in (("a", 40), ("b", 8), ("c", 30)):
        node.use(uid, memory=used * MIB)
    (worker,) = await node.keeper.check()
    assert (worker.uid, node.evicted()) == ("b", ["b"])
    assert node.done == ["report memory"]
    assert node.pressure.conditions == ("MemoryPressure",)
    assert node.metrics.evictions.value(eviction_signal="memory.available") == 1
    message = (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Container app was using 7Mi, request is 5Mi, has larger consumption of memory. "
    )
    ((termination, grace_s),) = node.workers[1].terminations
    assert termination == TerminationReason("Evicted", message, is_disruption=True)
    assert grace_s == 1


async def test_critical_pods_stay(tmp_path: Path) -> None:
    static = pod("b")
    static.metadata.annotations["kubernetes.io/config.source"] = "file"
    node = Node(tmp_path, pod("a", priority=2_000_000_000), static)
    node.supply = dict(MEMORY_LOW)
    assert await node.keeper.check() == []
    assert node.evicted() == []


async def test_process_ids_run_short_of_the_pod_with_most(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"), pod("b"), hard={"pid.available": "10%"})
    node.supply = {"pid.available": Observation(9, 100)}
    node.use("a", processes=3)
    node.use("b", processes=80)
    await node.keeper.check()
    assert node.evicted() == ["b"]
    assert node.pressure.conditions == ("PIDPressure",)


async def test_a_full_disk_is_freed_of_garbage_before_any_pod_goes(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"))
    node.supply, node.freed = dict(DISK_LOW), dict(DISK_GOOD)
    assert await node.keeper.check() == []
    assert node.done == ["report ephemeral-storage", "containers", "images"]
    assert node.pressure.conditions == ("DiskPressure",)


async def test_a_disk_that_stays_full_ends_the_pod_that_fills_it(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"), pod("b"))
    node.supply, node.layers_of = dict(DISK_LOW), {"a": 1, "b": 9}
    await node.keeper.check()
    assert node.evicted() == ["b"]
    assert node.done == ["report ephemeral-storage", "containers", "images"]


@pytest.mark.parametrize(
    ("signal", "done"),
    [("nodefs.available", []), ("imagefs.available", ["containers", "images"])],
)
async def test_images_on_a_disk_of_their_own_are_no_garbage_of_the_nodes(
    tmp_path: Path, signal: str, done: list[str]
) -> None:
    node = Node(tmp_path, pod("a"))
    node.supply, node.layers_of, node.is_apart = {signal: Observation(5, 100)}, {"a": 1}, True
    await node.keeper.check()
    assert node.done == ["report ephemeral-storage", *done]
    assert node.evicted() == ["a"]


async def test_pods_beyond_their_own_limits_go_first(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"))
    violator: Any = object()
    node.supply, node.violators = dict(MEMORY_LOW), [violator]
    assert await node.keeper.check() == [violator]
    assert node.evicted() == []


async def test_a_soft_threshold_gives_the_grace_period_that_is_allowed(tmp_path: Path) -> None:
    node = Node(
        tmp_path,
        pod("a"),
        hard={},
        soft={"memory.available": "100Mi"},
        soft_grace={"memory.available": "30s"},
        max_pod_grace_s=15,
    )
    node.supply = dict(MEMORY_LOW)
    assert await node.keeper.check() == []
    assert node.pressure.conditions == ("MemoryPressure",)
    node.clock.advance(30)
    await node.keeper.check()
    assert [grace_s for _, grace_s in node.workers[0].terminations] == [15]


async def test_one_pod_goes_at_a_time_and_its_end_is_waited_for(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"), pod("b"))
    node.supply = dict(MEMORY_LOW)
    node.use("a", memory=20 * MIB)
    node.use("b", memory=10 * MIB)
    task = asyncio.ensure_future(node.keeper.run())

    async def reached(uids: list[str]) -> None:
        async with asyncio.timeout(10):
            while node.evicted() != uids:
                await settle()
                await asyncio.sleep(0.002)

    try:
        await reached(["a"])
        node.clock.advance(29)
        await settle()
        assert node.evicted() == ["a"]
        node.workers[0].over.set()
        await reached(["a", "b"])
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()


def test_storage_is_summed_by_disk_and_by_container() -> None:
    use = disk_use_of(
        PodStorage(
            empty_dirs={"v": DiskUse(1, 1)},
            layers={"a": DiskUse(10, 2)},
            logs={"a": DiskUse(100, 3)},
            messages={"a": DiskUse(1000, 4)},
            files={"/etc/hosts": DiskUse(10000, 5)},
        )
    )
    assert (use.layers, use.local) == (DiskUse(10, 2), DiskUse(11101, 13))
    assert use.containers == {"a": ContainerUse(disk=DiskUse(110, 5))}


async def test_a_guest_outside_of_its_pods_cgroup_counts_for_the_order(tmp_path: Path) -> None:
    node = Node(tmp_path, pod("a"), pod("b"))
    node.supply = dict(MEMORY_LOW)
    node.use("a", memory=20 * MIB)
    node.use("b", memory=10 * MIB)
    cgroup_trees.write(
        tmp_path / "kata_overhead/s-b",
        {"memory.current": str(370 * MIB), "memory.stat": "", "cpu.stat": "usage_usec 1"},
    )
    await node.keeper.check()
    assert node.evicted() == ["b"]
