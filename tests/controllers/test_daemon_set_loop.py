"""The DaemonSet loop: a pod on each node, updates, revisions, events, status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import ForbiddenError
from moorage.controllers.daemonsets import DaemonSetController
from moorage.controllers.objects import NODES, PODS
from moorage.wire.client.resources import CONTROLLER_REVISIONS, DAEMON_SETS, RUNTIME_CLASSES
from tests.controllers.memory import MemoryClient, World


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("n1", "n2", "n3"):
        world.client.put(NODES, node(name))
    return world


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = DaemonSetController(world.client, world.informers, world.recorder, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def node(name: str, *, handlers: tuple[str, ...] = (), **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"runtimeHandlers": [{"name": handler} for handler in handlers]},
    }


def daemon_set(*, image: str = "a", runtime_class: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "agent", "namespace": "default", "uid": "set", "generation": 1},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template(image, runtime_class),
            **spec,
        },
    }


def template(image: str, runtime_class: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": image}]}
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return {"metadata": {"labels": {"app": "agent"}}, "spec": spec}


def changed(client: MemoryClient, **spec: Any) -> None:
    """Replace parts of the set's specification, keeping its status."""
    wire = client.find(DAEMON_SETS, "agent")
    assert wire is not None
    meta = {**wire["metadata"], "generation": wire["metadata"]["generation"] + 1}
    client.put(DAEMON_SETS, {**wire, "metadata": meta, "spec": {**wire["spec"], **spec}})


def node_of(wire: dict[str, Any]) -> str:
    required = wire["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def nodes(client: MemoryClient) -> list[str]:
    """The nodes of all pods."""
    return sorted(node_of(wire) for wire in client.all(PODS))


def images(client: MemoryClient) -> list[str]:
    return sorted(wire["spec"]["containers"][0]["image"] for wire in client.all(PODS))


async def all_ready(world: World) -> None:
    """Bind all pods and make them ready."""
    condition = {"type": "Ready", "status": "True",
                 "lastTransitionTime": format_time(world.clock.now())}  # fmt: skip
    for wire in world.client.all(PODS):
        if wire.get("status", {}).get("phase") != "Running":
            wire = {
                **wire,
                "spec": {**wire["spec"], "nodeName": node_of(wire)},
                "status": {"phase": "Running", "conditions": [condition]},
            }
            world.client.put(PODS, wire)
    await world.settled(1)


def status(client: MemoryClient) -> dict[str, Any]:
    wire = client.find(DAEMON_SETS, "agent")
    assert wire is not None
    return dict(wire["status"])


async def test_each_node_gets_a_pod_once(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set())
    async with reconciling(world) as client:
        await world.settled(1)
        assert nodes(client) == ["n1", "n2", "n3"]
        await all_ready(world)
        await world.settled(400)
        assert len(client.asked("create", PODS)) == 3
        assert status(client) == {
            "observedGeneration": 1, "currentNumberScheduled": 3, "desiredNumberScheduled": 3,
            "numberReady": 3, "numberAvailable": 3, "updatedNumberScheduled": 3,
            "numberMisscheduled": 0,
        }  # fmt: skip
        messages = {event[3] for event in client.events if event[2] == "SuccessfulCreate"}
        assert messages == {f"Created pod: {name}" for name in client.names(PODS)}


async def test_nodes_that_come_and_change_are_followed(world: World) -> None:
    wanted = daemon_set()
    wanted["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    world.client.put(DAEMON_SETS, wanted)
    async with reconciling(world) as client:
        await world.settled(1)
        assert nodes(client) == []
        assert status(client)["desiredNumberScheduled"] == 0
        client.put(NODES, node("n1", disk="ssd"))
        client.put(NODES, node("n4", disk="ssd"))
        await world.settled(1)
        assert nodes(client) == ["n1", "n4"]
        client.put(NODES, node("n1"))
        await world.settled(1)
        assert nodes(client) == ["n4"]


async def test_the_class_of_the_pods_decides_about_nodes(world: World) -> None:
    client = world.client
    client.put(NODES, node("n1", handlers=("runc", "kata"), kata="yes"))
    client.put(NODES, node("n2", handlers=("runc",), kata="yes"))
    client.put(NODES, node("n3", handlers=("runc", "kata")))
    scheduling = {"nodeSelector": {"kata": "yes"}}
    kata = {"metadata": {"name": "kata"}, "handler": "kata", "scheduling": scheduling}
    client.put(RUNTIME_CLASSES, kata)
    client.put(DAEMON_SETS, daemon_set(runtime_class="kata"))
    async with reconciling(world):
        await world.settled(1)
        assert nodes(client) == ["n1"]
        assert status(client)["desiredNumberScheduled"] == 1
        # A node that gets the handler gets a pod; one that loses it keeps what it has.
        client.put(NODES, node("n2", handlers=("runc", "kata"), kata="yes"))
        client.put(NODES, node("n1", handlers=("runc",), kata="yes"))
        await world.settled(1)
        assert nodes(client) == ["n1", "n2"]
        client.put(RUNTIME_CLASSES, {"metadata": {"name": "kata"}, "handler": "kata"})
        await world.settled(1)
        assert nodes(client) == ["n1", "n2", "n3"]


async def test_an_update_replaces_one_pod_after_the_other(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set())
    async with reconciling(world) as client:
        await world.settled(1)
        await all_ready(world)
        changed(client, template=template("b"))
        await world.settled(1)
        assert images(client) == ["a", "a", "b"]
        await world.settled(400)
        assert images(client) == ["a", "a", "b"]
        await all_ready(world)
        assert images(client) == ["a", "b", "b"]
        await all_ready(world)
        await all_ready(world)
        assert images(client) == ["b", "b", "b"]
        assert nodes(client) == ["n1", "n2", "n3"]
        assert status(client)["updatedNumberScheduled"] == 3
        revisions = client.all(CONTROLLER_REVISIONS)
        assert sorted(wire["revision"] for wire in revisions) == [1, 2]


async def test_surge_creates_the_new_pod_first(world: World) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    world.client.put(DAEMON_SETS, daemon_set(updateStrategy=rolling))
    async with reconciling(world) as client:
        await world.settled(1)
        await all_ready(world)
        changed(client, template=template("b"))
        await world.settled(1)
        assert images(client) == ["a", "a", "a", "b"]
        for _ in range(4):
            await all_ready(world)
        assert images(client) == ["b", "b", "b"]


async def test_on_delete_waits_for_someone(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set(updateStrategy={"type": "OnDelete"}))
    async with reconciling(world) as client:
        await world.settled(1)
        await all_ready(world)
        changed(client, template=template("b"))
        await world.settled(1)
        assert images(client) == ["a", "a", "a"]
        client.drop(PODS, client.names(PODS)[0])
        await world.settled(1)
        assert images(client) == ["a", "a", "b"]


async def test_a_template_that_comes_back_is_the_same_revision(world: World) -> None:
    strategy = {"type": "OnDelete"}
    world.client.put(DAEMON_SETS, daemon_set(updateStrategy=strategy, revisionHistoryLimit=1))
    async with reconciling(world) as client:
        await world.settled(1)
        for image in ("b", "a", "c", "d"):
            changed(client, template=template(image))
            await world.settled(1)
        # The pods are of the first template, whose revision is kept for them.
        numbers = sorted(wire["revision"] for wire in client.all(CONTROLLER_REVISIONS))
        assert numbers == [3, 5]


async def test_duplicate_revisions_are_merged(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set(updateStrategy={"type": "OnDelete"}))
    async with reconciling(world) as client:
        await world.settled(1)
        (wire,) = client.all(CONTROLLER_REVISIONS)
        labels = {"app": "agent", "controller-revision-hash": "copy"}
        copy = {**wire["metadata"], "name": "agent-copy", "uid": "copy", "labels": labels}
        client.put(CONTROLLER_REVISIONS, {**wire, "metadata": copy, "revision": 7})
        await world.settled(1)
        assert client.names(CONTROLLER_REVISIONS) == ["agent-copy"]
        hashes = {one["metadata"]["labels"]["controller-revision-hash"] for one in client.all(PODS)}
        assert hashes == {"copy"}


async def test_failed_pods_are_replaced_with_pauses(world: World) -> None:
    client = world.client
    client.drop(NODES, "n2")
    client.drop(NODES, "n3")
    client.put(DAEMON_SETS, daemon_set())

    async def fail() -> None:
        (wire,) = client.all(PODS)
        client.put(PODS, {**wire, "status": {"phase": "Failed"}})
        await world.settled()

    async with reconciling(world):
        await world.settled(1)
        await fail()
        assert len(client.asked("delete", PODS)) == 1
        await fail()
        assert len(client.asked("delete", PODS)) == 1
        await world.settled(1.1)
        assert len(client.asked("delete", PODS)) == 2
        await world.settled(1)
        reasons = [event[2] for event in client.events]
        assert "FailedDaemonPod" in reasons
        message = next(event[3] for event in client.events if event[2] == "FailedDaemonPod")
        assert message.endswith("on node n1, will try to kill it")


async def test_succeeded_pods_are_replaced_at_once(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set())
    async with reconciling(world) as client:
        await world.settled(1)
        wire = client.all(PODS)[0]
        client.put(PODS, {**wire, "status": {"phase": "Succeeded"}})
        await world.settled(1)
        assert len(client.asked("delete", PODS)) == 1
        assert nodes(client) == ["n1", "n2", "n3"]
        assert "SucceededDaemonPod" in [event[2] for event in client.events]


async def test_a_selector_of_all_pods_is_refused(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set(selector={}))
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.asked("create", PODS) == []
        assert [event[2] for event in client.events] == ["SelectingAll"]


@pytest.mark.failing_reconciles
async def test_refused_pods_are_reported(world: World) -> None:
    world.client.put(DAEMON_SETS, daemon_set(runtime_class="missing"))
    refusal = ForbiddenError('pods "agent-" is forbidden: RuntimeClass "missing" not found')
    world.client.failures.append(("create", "pods", refusal))
    async with reconciling(world) as client:
        await world.settled(1)
        message = next(event[3] for event in client.events if event[2] == "FailedCreate")
        assert message == f"Error creating: {refusal}"
        await world.settled(1)
        assert nodes(client) == ["n1", "n2", "n3"]
