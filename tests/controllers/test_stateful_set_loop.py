"""The StatefulSet loop: pods in order, claims, revisions, events, status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.controllers.objects import CLAIMS, PODS
from moorage.controllers.statefulsets import StatefulSetController
from moorage.controllers.statefulsets.planning import REVISION
from moorage.wire.client.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from tests.controllers.memory import MemoryClient, World


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = StatefulSetController(world.client, world.informers, world.recorder, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def stateful_set(replicas: int, *, image: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "serviceName": "svc",
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
            **spec,
        },
    }


def changed(client: MemoryClient, **spec: Any) -> None:
    """Replace parts of the set's specification, keeping its status."""
    wire = client.find(STATEFUL_SETS, "web")
    assert wire is not None
    generation = wire["metadata"]["generation"] + 1
    client.put(
        STATEFUL_SETS,
        {
            **wire,
            "metadata": {**wire["metadata"], "generation": generation},
            "spec": {**wire["spec"], **spec},
        },
    )


def ready(world: World, *names: str) -> None:
    for name in names:
        wire = world.client.find(PODS, name)
        assert wire is not None
        condition = {"type": "Ready", "status": "True",
                     "lastTransitionTime": format_time(world.clock.now())}  # fmt: skip
        world.client.put(PODS, {**wire, "status": {"phase": "Running", "conditions": [condition]}})


async def all_ready(world: World, count: int) -> None:
    for _ in range(count):
        ready(world, *world.client.names(PODS))
        await world.settled(1)


def template(image: str) -> dict[str, Any]:
    wire: dict[str, Any] = stateful_set(0, image=image)["spec"]["template"]
    return wire


def status(client: MemoryClient) -> dict[str, Any]:
    wire = client.find(STATEFUL_SETS, "web")
    assert wire is not None
    return dict(wire["status"])


def revision_of(client: MemoryClient, pod: str) -> str:
    wire = client.find(PODS, pod)
    assert wire is not None
    return str(wire["metadata"]["labels"][REVISION])


async def test_pods_are_created_one_after_the_other(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(3))
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.names(PODS) == ["web-0"]
        await world.settled(400)
        assert client.names(PODS) == ["web-0"]
        ready(world, "web-0")
        await world.settled()
        assert client.names(PODS) == ["web-0", "web-1"]
        await all_ready(world, 2)
        assert client.names(PODS) == ["web-0", "web-1", "web-2"]
        (name,) = client.names(CONTROLLER_REVISIONS)
        assert status(client) == {
            "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3,
            "updatedReplicas": 3, "availableReplicas": 3, "collisionCount": 0,
            "currentRevision": name, "updateRevision": name,
        }  # fmt: skip
        assert ("web", "Normal", "SuccessfulCreate",
                "Create Pod web-0 in StatefulSet web successful") in client.events  # fmt: skip
        assert len(client.asked("create", PODS)) == 3


async def test_parallel_pods_are_created_and_deleted_at_once(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(4, podManagementPolicy="Parallel"))
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.names(PODS) == ["web-0", "web-1", "web-2", "web-3"]
        changed(client, replicas=1)
        await world.settled(1)
        assert client.names(PODS) == ["web-0"]
        assert ("web", "Normal", "SuccessfulDelete",
                "Delete Pod web-3 in StatefulSet web successful") in client.events  # fmt: skip


async def test_a_new_template_replaces_pods_from_the_end(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(2))
    async with reconciling(world) as client:
        await all_ready(world, 3)
        before = status(client)["currentRevision"]
        changed(client, template=template("b"))
        await world.settled(1)
        after = status(client)["updateRevision"]
        assert after != before
        # The last pod went and came back from the new template; the first waits for it.
        assert revision_of(client, "web-0") == before
        assert revision_of(client, "web-1") == after
        assert status(client)["currentRevision"] == before
        await all_ready(world, 3)
        assert revision_of(client, "web-0") == after
        assert status(client)["currentRevision"] == after
        numbers = [wire["revision"] for wire in client.all(CONTROLLER_REVISIONS)]
        assert sorted(numbers) == [1, 2]


async def test_a_template_that_comes_back_gets_the_highest_number(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(1))
    async with reconciling(world) as client:
        await all_ready(world, 2)
        first = status(client)["currentRevision"]
        for image in ("b", "a"):
            changed(client, template=template(image))
            await all_ready(world, 3)
        assert status(client)["currentRevision"] == first
        wire = client.find(CONTROLLER_REVISIONS, first)
        assert wire is not None
        assert wire["revision"] == 3
        assert len(client.names(CONTROLLER_REVISIONS)) == 2


async def test_the_history_is_limited(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(1, revisionHistoryLimit=1))
    async with reconciling(world) as client:
        for image in "abcd":
            changed(client, template=template(image))
            await all_ready(world, 3)
        numbers = [wire["revision"] for wire in client.all(CONTROLLER_REVISIONS)]
        assert sorted(numbers) == [3, 4]


async def test_pods_below_the_partition_come_back_from_the_old_template(world: World) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    world.client.put(STATEFUL_SETS, stateful_set(2, updateStrategy=rolling))
    async with reconciling(world) as client:
        await all_ready(world, 3)
        before = status(client)["currentRevision"]
        changed(client, template=template("b"))
        await all_ready(world, 3)
        assert revision_of(client, "web-0") == before
        assert revision_of(client, "web-1") != before
        client.drop(PODS, "web-0")
        await world.settled(1)
        wire = client.find(PODS, "web-0")
        assert wire is not None
        assert wire["metadata"]["labels"][REVISION] == before
        assert wire["spec"]["containers"][0]["image"] == "a"


async def test_on_delete_replaces_what_someone_deletes(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(2, updateStrategy={"type": "OnDelete"}))
    async with reconciling(world) as client:
        await all_ready(world, 3)
        changed(client, template=template("b"))
        await world.settled(1)
        assert client.asked("delete", PODS) == []
        client.drop(PODS, "web-0")
        await all_ready(world, 2)
        assert revision_of(client, "web-0") == status(client)["updateRevision"]
        assert revision_of(client, "web-1") == status(client)["currentRevision"]


CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


async def test_each_pod_has_its_claims_and_they_stay(world: World) -> None:
    world.client.put(
        STATEFUL_SETS,
        stateful_set(2, volumeClaimTemplates=[CLAIM], podManagementPolicy="Parallel"),
    )
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.names(CLAIMS) == ["data-web-0", "data-web-1"]
        assert ("web", "Normal", "SuccessfulCreate",
                "Create Claim data-web-0 Pod web-0 in StatefulSet web success"
                ) in client.events  # fmt: skip
        changed(client, replicas=0)
        await world.settled(1)
        assert client.names(PODS) == []
        assert client.names(CLAIMS) == ["data-web-0", "data-web-1"]
        assert status(client)["replicas"] == 0


async def test_claims_go_with_a_pod_that_is_scaled_away(world: World) -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    world.client.put(
        STATEFUL_SETS,
        stateful_set(
            2, volumeClaimTemplates=[CLAIM], podManagementPolicy="Parallel",
            persistentVolumeClaimRetentionPolicy=policy,
        ),
    )  # fmt: skip

    def owners(claim: str) -> list[str]:
        wire = world.client.find(CLAIMS, claim)
        assert wire is not None
        return [owner["kind"] for owner in wire["metadata"].get("ownerReferences", ())]

    async with reconciling(world) as client:
        await world.settled(1)
        assert owners("data-web-1") == ["StatefulSet"]
        changed(client, replicas=1)
        await world.settled(1)
        assert client.names(PODS) == ["web-0"]
        assert (owners("data-web-0"), owners("data-web-1")) == (["StatefulSet"], ["Pod"])
        # The next pod of the name waits until the garbage collector has taken the claim.
        changed(client, replicas=2)
        await world.settled(1)
        assert client.names(PODS) == ["web-0"]
        client.drop(CLAIMS, "data-web-1")
        await world.settled(1)
        assert client.names(PODS) == ["web-0", "web-1"]
        assert owners("data-web-1") == ["StatefulSet"]


async def test_an_ended_pod_is_replaced(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(1))
    async with reconciling(world) as client:
        await all_ready(world, 2)
        wire = client.find(PODS, "web-0")
        assert wire is not None
        uid = wire["metadata"]["uid"]
        client.put(PODS, {**wire, "status": {"phase": "Failed"}})
        await world.settled(1)
        wire = client.find(PODS, "web-0")
        assert wire is not None
        assert wire["metadata"]["uid"] != uid


async def test_pods_are_available_after_min_ready_seconds(world: World) -> None:
    world.client.put(STATEFUL_SETS, stateful_set(2, minReadySeconds=30))
    async with reconciling(world) as client:
        await world.settled(1)
        ready(world, "web-0")
        await world.settled()
        assert status(client)["readyReplicas"] == 1
        assert status(client)["availableReplicas"] == 0
        await world.settled(31)
        assert client.names(PODS) == ["web-0", "web-1"]
        assert status(client)["availableReplicas"] == 1


async def test_an_orphan_of_the_name_is_adopted_and_labelled(world: World) -> None:
    orphan = {
        "metadata": {"name": "web-0", "uid": "p", "labels": {"app": "web"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    stranger = {"metadata": {"name": "other", "labels": {"app": "web"}}, "status": {}}
    world.client.put(PODS, orphan)
    world.client.put(PODS, stranger)
    world.client.put(STATEFUL_SETS, stateful_set(1, updateStrategy={"type": "OnDelete"}))
    async with reconciling(world) as client:
        await world.settled(1)
        wire = client.find(PODS, "web-0")
        assert wire is not None
        assert wire["metadata"]["ownerReferences"][0]["uid"] == "set"
        assert wire["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
        other = client.find(PODS, "other")
        assert other is not None
        assert "ownerReferences" not in other["metadata"]
        assert client.asked("delete", PODS) == []


async def test_a_set_that_is_being_deleted_changes_nothing(world: World) -> None:
    wire = stateful_set(2)
    wire["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.client.put(STATEFUL_SETS, wire)
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.asked("create") == []
