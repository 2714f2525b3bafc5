"""The pod garbage loop: orphans, pods that no agent ends, and ended ones beyond the number kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.controllers.objects import NODES, PODS
from moorage.controllers.options import ControllerOptions
from moorage.controllers.pod_garbage import PodGarbageCollector
from moorage.wire.client.rest import PatchType
from tests.controllers.memory import MemoryClient, World

OUT = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
SINCE = "2026-01-01T00:00:00Z"


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def collecting(world: World, **options: Any) -> AsyncIterator[MemoryClient]:
    collector = PodGarbageCollector(
        world.client, world.informers, ControllerOptions(cluster_ca="", **options), world.clock
    )
    async with world.running(collector.run()) as client:
        yield client


def node(name: str, ready: str = "True", *taints: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(
    name: str, on: str, phase: str = "Running", *, reason: str = "", **meta: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 3, **meta,
        },
        "spec": {"nodeName": on},
        "status": {"phase": phase, "reason": reason},
    }  # fmt: skip


def leaving(name: str, on: str, **more: Any) -> dict[str, Any]:
    return pod(name, on, deletionTimestamp=SINCE, deletionGracePeriodSeconds=30, **more)


async def test_pods_of_a_node_that_has_gone_fail_and_go_after_a_quarantine(world: World) -> None:
    for name in ("n1", "n2"):
        world.client.put(NODES, node(name))
    world.client.put(PODS, pod("a", "n1"))
    world.client.put(PODS, pod("done", "n1", "Succeeded"))
    world.client.put(PODS, pod("b", "n2"))
    async with collecting(world) as client:
        client.drop(NODES, "n1")
        await world.settled(39)
        assert client.names(PODS) == ["a", "b", "done"]
        await world.settled(2)
        assert client.names(PODS) == ["b"]
        (patch,) = client.asked("patch", PODS)
        assert patch.key == "default/a"
        assert patch.body == {
            "metadata": {"uid": "uid-a"},
            "status": {
                "phase": "Failed",
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "DeletionByPodGC",
                        "message": "PodGC: node no longer exists",
                        "lastTransitionTime": "2026-01-01T00:00:41Z",
                        "observedGeneration": 3,
                    }
                ],
            },
        }
        assert patch.more == {"kind": PatchType.STRATEGIC, "subresource": "status"}
        deletions = {request.key: request.more for request in client.asked("delete", PODS)}
        assert deletions == {
            "default/a": {"uid": "uid-a", "grace_period_seconds": 0},
            "default/done": {"uid": "uid-done", "grace_period_seconds": 0},
        }


async def test_a_node_that_comes_back_keeps_its_pods(world: World) -> None:
    world.client.put(NODES, node("n1"))
    world.client.put(PODS, pod("a", "n1"))
    async with collecting(world) as client:
        client.drop(NODES, "n1")
        await world.settled(20)
        client.put(NODES, node("n1"))
        await world.settled(30)
        assert client.names(PODS) == ["a"]
        assert client.writes == []


async def test_the_server_is_asked_before_a_node_counts_as_gone(world: World) -> None:
    world.client.put(NODES, node("n1"))
    world.client.put(PODS, pod("a", "n1"))
    async with collecting(world) as client:
        client.drop(NODES, "n1")
        await world.settled()
        client.put_unseen(NODES, {"metadata": {"name": "n1"}, "spec": {}, "status": {}})
        await world.settled(41)
        assert client.names(PODS) == ["a"]
        assert [request.key for request in client.asked("get", NODES)] == ["n1"]


async def test_pods_bound_to_a_node_that_never_was_are_orphans(world: World) -> None:
    world.client.put(PODS, pod("a", "unknown"))
    world.client.put(PODS, pod("b", ""))
    world.client.put(PODS, pod("c", ""))
    async with collecting(world) as client:
        client.put(PODS, pod("b", "nowhere"))
        await world.settled(41)
        assert client.names(PODS) == ["c"]


@pytest.mark.parametrize(
    ("of", "is_ended"),
    [
        (node("n1", "False", OUT), True),
        (node("n1", "Unknown", OUT), True),
        (node("n1", "True", OUT), False),
        (node("n1", "False"), False),
        (node("n1", "Unknown", {"key": "other", "effect": "NoExecute"}), False),
    ],
)
async def test_pods_end_on_a_node_that_is_out_of_service_and_not_ready(
    world: World, of: dict[str, Any], is_ended: bool
) -> None:
    world.client.put(NODES, of)
    world.client.put(NODES, node("n2"))
    world.client.put(PODS, leaving("a", "n1"))
    world.client.put(PODS, leaving("b", "n2"))
    world.client.put(PODS, pod("stays", "n1"))
    async with collecting(world) as client:
        await world.settled(60)
        assert client.names(PODS) == (["b", "stays"] if is_ended else ["a", "b", "stays"])
        if is_ended:
            patch, deletion = client.writes
            assert patch.body == {"metadata": {"uid": "uid-a"}, "status": {"phase": "Failed"}}
            assert deletion.more == {"uid": "uid-a", "grace_period_seconds": 0}


async def test_a_node_that_goes_out_of_service_ends_the_pods_already_leaving(world: World) -> None:
    world.client.put(NODES, node("n1", "False"))
    world.client.put(NODES, node("n2", "False"))
    world.client.put(PODS, leaving("a", "n1"))
    world.client.put(PODS, leaving("b", "n2"))
    world.client.put(PODS, pod("stays", "n1"))
    async with collecting(world) as client:
        client.put(NODES, node("n1", "False", OUT))
        await world.settled()
        assert client.names(PODS) == ["b", "stays"]
        # A pod deleted from now on ends as well.
        client.put(PODS, leaving("stays", "n1"))
        await world.settled()
        assert client.names(PODS) == ["b"]


async def test_a_deleted_pod_that_no_node_has_ends_at_once(world: World) -> None:
    world.client.put(NODES, node("n1"))
    world.client.put(PODS, pod("a", ""))
    world.client.put(PODS, pod("b", "n1"))
    async with collecting(world) as client:
        client.put(PODS, leaving("a", ""))
        client.put(PODS, leaving("b", "n1"))
        await world.settled(60)
        assert client.names(PODS) == ["b"]


async def test_beyond_the_number_kept_evicted_and_then_oldest_ended_pods_go(world: World) -> None:
    world.client.put(NODES, node("n1"))
    stamps = {"old": "2026-01-01T00:00:01Z", "older": "2026-01-01T00:00:00Z"}
    for name, stamp in stamps.items():
        world.client.put(PODS, pod(name, "n1", "Succeeded", creationTimestamp=stamp))
    late = "2026-01-01T00:00:09Z"
    world.client.put(PODS, pod("new", "n1", "Failed", creationTimestamp=late))
    world.client.put(PODS, pod("run", "n1", creationTimestamp="2025-01-01T00:00:00Z"))
    async with collecting(world, terminated_pods_kept=3) as client:
        assert client.writes == []
        evicted = pod("evicted", "n1", "Failed", reason="Evicted", creationTimestamp=late)
        client.put(PODS, evicted)
        await world.settled()
        assert client.names(PODS) == ["new", "old", "older", "run"]
        assert client.asked("patch") == []
        client.put(PODS, pod("last", "n1", creationTimestamp=late))
        await world.settled()
        client.put(PODS, pod("last", "n1", "Succeeded", creationTimestamp=late))
        await world.settled()
        assert client.names(PODS) == ["last", "new", "old", "run"]
        client.drop(PODS, "last")
        await world.settled()
        client.put(PODS, pod("again", "n1", "Succeeded", creationTimestamp=late))
        await world.settled()
        assert client.names(PODS) == ["again", "new", "old", "run"]


async def test_a_pod_that_goes_by_itself_meanwhile_is_no_failure(world: World) -> None:
    world.client.put(NODES, node("n1"))
    for name in ("a", "b"):
        world.client.put(PODS, pod(name, "n1"))
    async with collecting(world) as client:
        client.drop(NODES, "n1")
        await world.settled(10)
        client.drop_unseen(PODS, "a")
        successor = pod("b", "n2", uid="another", resourceVersion="99")
        client.put_unseen(PODS, successor)
        client.put(NODES, node("n2"))
        # The successor is not touched; the copy learns of it, and the work is done again.
        await world.settled(31)
        assert client.find(PODS, "b") == successor
