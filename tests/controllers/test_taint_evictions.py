"""The taint eviction loop: who has to leave a node, when, and how it is asked to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.controllers.nodes.eviction import TaintEvictionController
from moorage.controllers.objects import NODES, PODS
from moorage.wire.client.rest import PatchType
from tests.controllers.memory import MemoryClient, World

MINE = {"key": "mine", "value": "x", "effect": "NoExecute"}
OTHER = {"key": "other", "effect": "NoExecute"}


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def evicting(world: World) -> AsyncIterator[MemoryClient]:
    controller = TaintEvictionController(world.client, world.informers, world.recorder, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def node(name: str, *taints: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"taints": list(taints)}, "status": {}}


def pod(name: str, on: str, *tolerations: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **meta},
        "spec": {"nodeName": on, "tolerations": list(tolerations)},
        "status": {"phase": "Running"},
    }


def bears(key: str, seconds: int | None = None, effect: str = "NoExecute") -> dict[str, Any]:
    toleration: dict[str, Any] = {"key": key, "operator": "Exists", "effect": effect}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


async def test_a_taint_takes_the_pods_that_do_not_bear_it(world: World) -> None:
    world.client.put(NODES, node("n1"))
    world.client.put(NODES, node("n2"))
    for obj in (pod("a", "n1"), pod("b", "n1", bears("mine")), pod("c", "n2"), pod("d", "")):
        world.client.put(PODS, obj)
    async with evicting(world) as client:
        assert client.writes == []
        client.put(NODES, node("n1", MINE))
        await world.settled(1)
        assert client.names(PODS) == ["b", "c", "d"]
        patch, deletion = client.writes
        (condition,) = patch.body["status"]["conditions"]
        assert condition == {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 0,
        }
        assert patch.body["metadata"] == {"uid": "uid-a"}
        assert patch.more == {"kind": PatchType.STRATEGIC, "subresource": "status"}
        assert (deletion.verb, deletion.key) == ("delete", "default/a")
        assert deletion.more == {"uid": "uid-a"}
        event = ("a", "Normal", "TaintManagerEviction", "Marking for deletion Pod default/a")
        assert client.events == [event]


async def test_the_same_key_with_two_effects_is_two_taints(world: World) -> None:
    both = (MINE, {**MINE, "effect": "NoSchedule"})
    world.client.put(NODES, node("n1", *both))
    world.client.put(PODS, pod("a", "n1", bears("mine", effect="NoSchedule")))
    world.client.put(PODS, pod("b", "n1", bears("mine", effect="NoExecute")))
    world.client.put(PODS, pod("c", "n1", bears("mine", effect="NoSchedule"), bears("mine", 30)))
    world.client.put(PODS, pod("d", "n1", bears("mine", effect="")))
    async with evicting(world) as client:
        assert client.names(PODS) == ["b", "c", "d"]
        await world.settled(31)
        assert client.names(PODS) == ["b", "d"]


async def test_a_pod_leaves_when_its_time_is_over(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("a", "n1", bears("mine", 30)))
    world.client.put(PODS, pod("b", "n1", bears("mine", 60)))
    async with evicting(world) as client:
        await world.settled(29)
        assert client.names(PODS) == ["a", "b"]
        await world.settled(2)
        assert client.names(PODS) == ["b"]
        await world.settled(30)
        assert client.names(PODS) == []


async def test_time_runs_from_when_the_pod_was_first_seen_with_taints(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("a", "n1", bears("mine", 30), bears("other", 40)))
    async with evicting(world) as client:
        await world.settled(20)
        # Another taint, and another write of the pod, begin nothing again.
        client.put(NODES, node("n1", MINE, OTHER))
        client.put(PODS, pod("a", "n1", bears("mine", 35), bears("other", 40)))
        await world.settled(14)
        assert client.names(PODS) == ["a"]
        await world.settled(2)
        assert client.names(PODS) == []


async def test_when_the_taint_goes_the_pod_stays_and_its_time_begins_again(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("a", "n1", bears("mine", 30)))
    world.client.put(PODS, pod("b", "n1", bears("mine")))
    async with evicting(world) as client:
        await world.settled(20)
        client.put(NODES, node("n1"))
        await world.settled(20)
        event = ("a", "Normal", "TaintManagerEviction", "Cancelling deletion of Pod default/a")
        assert client.events == [event]
        client.put(NODES, node("n1", MINE))
        await world.settled(29)
        assert client.names(PODS) == ["a", "b"]
        await world.settled(2)
        assert client.names(PODS) == ["b"]


async def test_a_successor_of_the_same_name_has_its_own_time(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("a", "n1", bears("mine", 30)))
    async with evicting(world) as client:
        await world.settled(20)
        client.put(PODS, pod("a", "n1", bears("mine", 30), uid="another"))
        await world.settled(29)
        assert client.names(PODS) == ["a"]
        await world.settled(2)
        assert client.names(PODS) == []


async def test_a_pod_that_was_deleted_and_made_again_has_its_own_time(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("a", "n1", bears("mine", 30)))
    async with evicting(world) as client:
        await world.settled(20)
        client.drop(PODS, "a")
        await world.settled(1)
        client.put(PODS, pod("a", "n1", bears("mine", 30)))
        await world.settled(29)
        assert client.names(PODS) == ["a"]
        await world.settled(2)
        assert client.names(PODS) == []


async def test_news_of_a_pod_are_its_node_its_tolerations_and_its_uid(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("bound", ""))
    world.client.put(PODS, pod("changed", "n1", bears("mine")))
    world.client.put(PODS, pod("replaced", "n1", bears("mine")))
    async with evicting(world) as client:
        client.put(PODS, pod("bound", "n1"))
        client.put(PODS, pod("changed", "n1"))
        client.put(PODS, pod("replaced", "n1", uid="another"))
        await world.settled()
        assert client.names(PODS) == []


async def test_pods_on_their_way_out_are_left_alone(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    leaving = pod("a", "n1", deletionTimestamp="2026-01-01T00:00:00Z")
    world.client.put(PODS, leaving)
    world.client.put(PODS, pod("b", "n1"))
    async with evicting(world) as client:
        assert {write.key for write in client.writes} == {"default/b"}


async def test_a_pod_of_the_same_name_that_came_since_stays(world: World) -> None:
    world.client.put(NODES, node("n1"))
    world.client.put(PODS, pod("a", "n1"))
    world.client.put(PODS, pod("gone", "n1"))
    async with evicting(world) as client:
        client.drop_unseen(PODS, "gone")
        successor = pod("a", "n2", uid="another", resourceVersion="99")
        client.put_unseen(PODS, successor)
        client.put(NODES, node("n1", MINE))
        await world.settled()
        assert client.find(PODS, "a") == successor
        assert client.asked("delete") == []


async def test_a_deleted_nodes_pods_have_no_taints_to_bear(world: World) -> None:
    world.client.put(NODES, node("n1", MINE))
    world.client.put(PODS, pod("a", "n1", bears("mine", 30)))
    async with evicting(world) as client:
        await world.settled(10)
        client.drop(NODES, "n1")
        await world.settled(60)
        assert client.names(PODS) == ["a"]
