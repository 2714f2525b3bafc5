from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from moorage.api.pods import Pod
from moorage.node.cgroups.tree import QosTree
from moorage.node.cgroups.values import CgroupValues
from tests.clocks import FakeClock, settle
from tests.node.objects import a_pod, wire_container


class FakeTree:
    """The values each cgroup was set to, in order."""

    def __init__(self, *present: str) -> None:
        self.present = set(present)
        self.set: list[tuple[str, CgroupValues]] = []

    def exists(self, directory: str) -> bool:
        return directory in self.present

    def ensure(self, directory: str, values: CgroupValues) -> None:
        self.set.append((directory, values))

    async def until_set(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.set) < count:
                # The tree is written in a thread: one more turn through the threads.
                await asyncio.to_thread(int)


ALLOCATABLE = {"cpu": "2", "memory": "1Gi"}
BURSTABLE = "kubepods/burstable"


def tree_of(tree: FakeTree, pods: Callable[[], list[Pod]] = list) -> QosTree:
    result: Any = tree
    return QosTree(result, FakeClock(), allocatable=ALLOCATABLE, pods=pods)


async def test_all_pods_together_may_use_what_is_allocatable() -> None:
    tree = FakeTree()
    await tree_of(tree).prepare()
    assert tree.set == [
        ("kubepods", CgroupValues(shares=2048, memory_bytes=1 << 30)),
        (BURSTABLE, CgroupValues(shares=2)),
        ("kubepods/besteffort", CgroupValues(shares=2)),
    ]


async def test_all_pods_together_leave_process_ids_to_the_machine() -> None:
    tree = FakeTree()
    result: Any = tree
    qos_tree = QosTree(result, FakeClock(), allocatable=ALLOCATABLE, pids_limit=28672, pods=list)
    await qos_tree.prepare()
    assert tree.set[0] == (
        "kubepods",
        CgroupValues(shares=2048, memory_bytes=1 << 30, pids=28672),
    )


async def test_a_new_agent_does_not_starve_what_runs() -> None:
    tree = FakeTree(BURSTABLE)
    await tree_of(tree).prepare()
    assert BURSTABLE not in [directory for directory, _ in tree.set]


async def test_burstable_pods_are_weighed_at_once_and_whenever_one_comes() -> None:
    tree, pods = FakeTree(), [a_pod(wire_container(resources={"requests": {"cpu": "1"}}))]
    qos_tree = tree_of(tree, lambda: pods)
    running = asyncio.ensure_future(qos_tree.run())
    await tree.until_set(1)
    pods.append(pods[0])
    qos_tree.pods_changed()
    await tree.until_set(2)
    qos_tree.pods_changed()
    await settle()
    running.cancel()
    assert tree.set == [
        (BURSTABLE, CgroupValues(shares=1024)),
        (BURSTABLE, CgroupValues(shares=2048)),
    ]
