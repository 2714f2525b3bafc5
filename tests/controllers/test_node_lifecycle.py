"""The node lifecycle loop, step by step: who is silent, what is written, what is left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.clock import format_micro_time, format_time
from moorage.controllers.nodes.lifecycle import NodeLifecycleController
from moorage.controllers.objects import LEASES, NODES, PODS
from moorage.controllers.options import ControllerOptions
from moorage.wire.client.rest import PatchType
from tests.controllers.memory import MemoryClient, World

GRACE_S, STARTUP_S = 50.0, 60.0


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def following(world: World, **options: Any) -> AsyncIterator[MemoryClient]:
    controller_options = {"node_evictions_per_s": 0.1, **options}
    controller = NodeLifecycleController(
        world.client, world.informers, world.recorder,
        ControllerOptions(cluster_ca="", **controller_options), world.clock,
    )  # fmt: skip
    async with world.running(controller.run()) as client:
        yield client


def node(world: World, name: str, ready: str | None = "True", **labels: str) -> dict[str, Any]:
    now = format_time(world.clock.now())
    conditions = [{"type": "DiskPressure", "status": "False", "lastHeartbeatTime": now}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready, "lastHeartbeatTime": now})
    return {
        "metadata": {"name": name, "creationTimestamp": now, "labels": labels},
        "spec": {},
        "status": {"conditions": conditions if ready is not None else []},
    }


def lease(world: World, name: str, namespace: str = "kube-node-lease") -> dict[str, Any]:
    renewed = format_micro_time(world.clock.now())
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"renewTime": renewed}}


def pod(name: str, on: str, ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"nodeName": on},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def ready_of(client: MemoryClient, name: str) -> str | None:
    obj = client.find(NODES, name)
    assert obj is not None
    return next((c["status"] for c in obj["status"]["conditions"] if c["type"] == "Ready"), None)


def taints(client: MemoryClient, name: str) -> set[str]:
    obj = client.find(NODES, name)
    assert obj is not None
    return {f"{taint['key']}:{taint['effect']}" for taint in obj["spec"].get("taints") or ()}


async def test_a_silent_node_becomes_unknown_when_the_grace_period_is_over(world: World) -> None:
    world.client.put(NODES, node(world, "n1"))
    world.client.put(NODES, node(world, "n2"))
    async with following(world) as client:
        await world.settled(GRACE_S - 1)
        client.put(LEASES, lease(world, "n2"))
        await world.settled()
        assert (ready_of(client, "n1"), ready_of(client, "n2")) == ("True", "True")
        assert client.writes == []
        await world.settled(2)
        assert (ready_of(client, "n1"), ready_of(client, "n2")) == ("Unknown", "True")
        await world.settled(GRACE_S)
        assert ready_of(client, "n2") == "Unknown"


async def test_what_is_written_of_a_silent_node_is_for_the_version_that_was_read(
    world: World,
) -> None:
    world.client.put(NODES, node(world, "n1"))
    world.client.put(NODES, node(world, "n2"))
    async with following(world) as client:
        version = client.find(NODES, "n1")["metadata"]["resourceVersion"]  # type: ignore[index]
        await world.settled(GRACE_S + 1)
        status = next(request for request in client.asked("patch", NODES) if request.key == "n1")
        assert status.more["subresource"] == "status"
        assert status.more["kind"] is PatchType.STRATEGIC
        assert status.body["metadata"] == {"uid": "n1", "resourceVersion": version}
        types = {condition.type for condition in status.body["status"]["conditions"]}
        assert types == {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"}
        assert len([request for request in client.asked("patch", NODES)
                    if request.key == "n1" and request.more.get("subresource")]) == 1  # fmt: skip


async def test_a_node_that_never_reported_gets_the_startup_grace_since_its_creation(
    world: World,
) -> None:
    world.client.put(NODES, node(world, "new", None))
    world.client.put(NODES, node(world, "good"))
    world.clock.advance(20)
    async with following(world) as client:
        client.put(NODES, node(world, "good"))
        await world.settled(STARTUP_S - 21)
        assert ready_of(client, "new") is None
        await world.settled(2)
        assert ready_of(client, "new") == "Unknown"
        assert ready_of(client, "good") == "True"


async def test_a_node_without_a_heartbeat_time_is_not_alive_for_writing_something_else(
    world: World,
) -> None:
    silent = node(world, "n1")
    for condition in silent["status"]["conditions"]:
        del condition["lastHeartbeatTime"]
    world.client.put(NODES, silent)
    async with following(world) as client:
        await world.settled(GRACE_S - 10)
        # A label, and the heartbeat of another condition, are not the agent's word.
        labelled = client.find(NODES, "n1")
        assert labelled is not None
        labelled["metadata"]["labels"] = {"a": "b"}
        labelled["status"]["conditions"][0]["lastHeartbeatTime"] = format_time(world.clock.now())
        client.put(NODES, labelled)
        await world.settled(11)
        assert ready_of(client, "n1") == "Unknown"


async def test_the_heartbeat_of_ready_or_a_new_status_keeps_a_node_alive(world: World) -> None:
    for name in ("beats", "turns", "says-unknown"):
        world.client.put(NODES, node(world, name))
    async with following(world) as client:
        await world.settled(GRACE_S - 10)
        old = client.find(NODES, "turns")
        client.put(NODES, node(world, "beats"))
        assert old is not None
        old["status"]["conditions"][1]["status"] = "False"
        client.put(NODES, old)
        # Only the controller itself writes Unknown, so that is no sign of life.
        other = client.find(NODES, "says-unknown")
        assert other is not None
        other["status"]["conditions"][1]["status"] = "Unknown"
        client.put(NODES, other)
        await world.settled(11)
        assert (ready_of(client, "beats"), ready_of(client, "turns")) == ("True", "False")
        # It is silent since before, so its other conditions turn Unknown now.
        obj = client.find(NODES, "says-unknown")
        assert obj is not None
        assert {condition["status"] for condition in obj["status"]["conditions"]} == {"Unknown"}


@pytest.mark.parametrize(
    ("name", "namespace"), [("other", "kube-node-lease"), ("n1", "kube-system")]
)
async def test_lease_of_another_node_is_no_heartbeat(
    world: World, name: str, namespace: str
) -> None:
    world.client.put(NODES, node(world, "n1"))
    async with following(world) as client:
        await world.settled(GRACE_S - 10)
        client.put(LEASES, lease(world, name, namespace))
        await world.settled(11)
        assert ready_of(client, "n1") == "Unknown"


async def test_lease_update_without_renewal_is_no_heartbeat(
    world: World,
) -> None:
    world.client.put(NODES, node(world, "n1"))
    old = lease(world, "n1")
    world.client.put(LEASES, old)
    async with following(world) as client:
        await world.settled(GRACE_S - 10)
        old["metadata"]["labels"] = {"a": "b"}
        client.put(LEASES, old)
        await world.settled(11)
        assert ready_of(client, "n1") == "Unknown"


async def test_pods_of_a_node_that_stops_being_ready_are_not_ready(world: World) -> None:
    for name in ("n1", "n2"):
        world.client.put(NODES, node(world, name))
    for obj in (pod("a", "n1"), pod("b", "n1", "False"), pod("c", "n2"), pod("d", "n1")):
        world.client.put(PODS, obj)
    async with following(world) as client:
        client.put(NODES, node(world, "n1", "False"))
        await world.settled(1)
        patched = {request.key: request for request in client.asked("patch", PODS)}
        assert patched.keys() == {"default/a", "default/d"}
        patch = patched["default/a"]
        assert patch.body["metadata"] == {"uid": "uid-a"}
        (condition,) = patch.body["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "False")
        assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
        assert patch.more == {"kind": PatchType.STRATEGIC, "subresource": "status"}
        assert ("a", "Warning", "NodeNotReady", "Node is not ready") in client.events
        message = "Node n1 status is now: NodeNotReady"
        assert ("n1", "Normal", "NodeNotReady", message) in client.events
        client.requests.clear()
        beat = node(world, "n1", "False")
        client.put(NODES, beat)
        await world.settled(1)
        assert client.asked("patch", PODS) == []


async def test_a_pod_of_the_same_name_that_came_since_keeps_its_readiness(world: World) -> None:
    world.client.put(NODES, node(world, "n1"))
    world.client.put(NODES, node(world, "n2"))
    world.client.put(PODS, pod("a", "n1"))
    async with following(world) as client:
        # The copy still has the old pod; the server has its successor.
        successor = pod("a", "n2")
        successor["metadata"] |= {"uid": "another", "resourceVersion": "99"}
        client.put_unseen(PODS, successor)
        client.put(NODES, node(world, "n1", "False"))
        await world.settled()
        (condition,) = client.find(PODS, "a")["status"]["conditions"]  # type: ignore[index]
        assert condition["status"] == "True"


async def test_a_pod_that_has_gone_meanwhile_is_no_failure(world: World) -> None:
    world.client.put(NODES, node(world, "n1"))
    world.client.put(NODES, node(world, "n2"))
    for name in ("a", "b"):
        world.client.put(PODS, pod(name, "n1"))
    async with following(world) as client:
        client.drop_unseen(PODS, "a")
        client.put(NODES, node(world, "n1", "False"))
        await world.settled(1)
        assert {event[0] for event in client.events if event[1] == "Warning"} == {"b"}


async def test_a_lost_node_gets_both_taints_and_loses_them_when_it_is_back(world: World) -> None:
    world.client.put(NODES, node(world, "n1", "Unknown"))
    world.client.put(NODES, node(world, "n2"))
    async with following(world) as client:
        lost = {f"node.kubernetes.io/unreachable:{name}" for name in ("NoSchedule", "NoExecute")}
        assert taints(client, "n1") == lost
        assert taints(client, "n2") == set()
        for patch in client.asked("patch", NODES):
            assert patch.body["metadata"].keys() == {"uid", "resourceVersion"}
        back = client.find(NODES, "n1")
        assert back is not None
        back["status"] = node(world, "n1")["status"]
        client.put(NODES, back)
        await world.settled()
        assert taints(client, "n1") == set()


async def test_nodes_are_given_up_one_at_a_time(world: World) -> None:
    world.client.put(NODES, node(world, "good"))
    for name in ("n1", "n2"):
        world.client.put(NODES, node(world, name, "False"))
    async with following(world) as client:

        def evicting() -> set[str]:
            names = ("n1", "n2")
            return {name for name in names if any("NoExecute" in t for t in taints(client, name))}

        assert len(evicting()) == 1
        await world.settled(9)
        assert len(evicting()) == 1
        await world.settled(2)
        assert evicting() == {"n1", "n2"}


async def test_no_node_is_evicted_while_all_are_silent(world: World) -> None:
    for name in ("n1", "n2"):
        world.client.put(NODES, node(world, name))
    async with following(world) as client:
        await world.settled(GRACE_S + 1)
        await world.settled(100)
        for name in ("n1", "n2"):
            assert taints(client, name) == {"node.kubernetes.io/unreachable:NoSchedule"}
        # One is back: the other has a new grace period before it counts as silent.
        client.put(NODES, node(world, "n1"))
        await world.settled(1)
        assert taints(client, "n1") == set()


async def test_silence_before_everybody_came_back_does_not_count(world: World) -> None:
    for name in ("n1", "n2"):
        world.client.put(NODES, node(world, name))
    async with following(world) as client:
        await world.settled(GRACE_S + 1)
        silent = client.find(NODES, "n2")
        assert silent is not None
        client.put(NODES, node(world, "n1"))
        await world.settled()
        client.requests.clear()
        silent["status"] = node(world, "n2")["status"]
        client.put(NODES, silent)
        await world.settled(GRACE_S - 2)
        assert ready_of(client, "n2") == "True"


async def test_coming_and_going_nodes_are_events(world: World) -> None:
    world.client.put(NODES, node(world, "n1"))
    async with following(world) as client:
        client.drop(NODES, "n1")
        await world.settled(1)
        successor = node(world, "n1")
        successor["metadata"]["uid"] = "second"
        client.put(NODES, successor)
        await world.settled(1)
        replaced = node(world, "n1")
        replaced["metadata"]["uid"] = "another"
        client.put(NODES, replaced)
        await world.settled(1)
        registered = (
            "n1", "Normal", "RegisteredNode",
            "Node n1 event: Registered Node n1 in Controller",
        )  # fmt: skip
        removing = (
            "n1", "Normal", "RemovingNode",
            "Node n1 event: Removing Node n1 from Controller",
        )  # fmt: skip
        events = [
            event for event in client.events if event[2] in ("RegisteredNode", "RemovingNode")
        ]
        assert events[:2] == [registered, removing]
        assert events.count(removing) == 2


async def test_a_namesake_of_a_node_has_a_life_of_its_own(world: World) -> None:
    world.client.put(NODES, node(world, "n1"))
    async with following(world) as client:
        await world.settled(GRACE_S - 1)
        replaced = node(world, "n1")
        replaced["metadata"]["uid"] = "another"
        client.put(NODES, replaced)
        await world.settled(2)
        assert ready_of(client, "n1") == "True"
        await world.settled(GRACE_S)
        assert ready_of(client, "n1") == "Unknown"
