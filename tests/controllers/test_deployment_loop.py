"""The Deployment loop against sets that say what the test wants: requests, status, events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ForbiddenError
from moorage.controllers.deployments import DeploymentController
from moorage.controllers.objects import PODS
from moorage.controllers.templates import template_hash
from moorage.wire.client.resources import DEPLOYMENTS, REPLICA_SETS
from tests.controllers.memory import MemoryClient, World

NOW = "2026-01-01T00:00:00Z"
REVISION = "deployment.kubernetes.io/revision"


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = DeploymentController(world.client, world.informers, world.recorder, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def template(image: str = "a") -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }


def deployment(
    size: int, image: str = "a", *, strategy: str = "RollingUpdate", deadline: int | None = 600,
    name: str = "web", history: int | None = 10, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    meta = more.pop("meta", {})
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1,
                     **meta},
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": {"app": name}},
            "template": template(image),
            "strategy": {"type": strategy, **(rolling if strategy == "RollingUpdate" else {})},
            "progressDeadlineSeconds": deadline,
            "revisionHistoryLimit": history,
            **more,
        },
        "status": {},
    }  # fmt: skip


def name_of(image: str, collisions: int = 0) -> str:
    return f"web-{template_hash(template(image), collisions)}"


def grown(client: MemoryClient, *, available: bool = True) -> None:
    """Let every set have the pods it wants."""
    for replica_set in list(client.all(REPLICA_SETS)):
        size = replica_set["spec"]["replicas"]
        count = size if available else 0
        status = {
            "replicas": size, "readyReplicas": count, "availableReplicas": count,
            "observedGeneration": replica_set["metadata"].get("generation", 0),
            "terminatingReplicas": 0,
        }  # fmt: skip
        if replica_set.get("status") != status:
            client.put(REPLICA_SETS, {**replica_set, "status": status})


def change_spec(client: MemoryClient, wanted: dict[str, Any]) -> None:
    """Give the deployment the spec of another one."""
    obj = client.find(DEPLOYMENTS, "web")
    assert obj is not None
    client.put(DEPLOYMENTS, {**obj, "spec": wanted["spec"]})


def condition(client: MemoryClient, type_: str, name: str = "web") -> dict[str, Any]:
    obj = client.find(DEPLOYMENTS, name)
    assert obj is not None
    return next((condition for condition in obj["status"].get("conditions", ())
                 if condition["type"] == type_), {})  # fmt: skip


def sizes(client: MemoryClient) -> dict[str, int]:
    names = {name_of(image): image for image in "abcd"}
    return {
        names.get(replica_set["metadata"]["name"], replica_set["metadata"]["name"]): replica_set[
            "spec"
        ]["replicas"]
        for replica_set in client.all(REPLICA_SETS)
    }


async def test_the_first_set_is_made_from_the_template_and_announced(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(3, minReadySeconds=4,
                                             meta={"annotations": {"note": "x"}}))  # fmt: skip
    async with reconciling(world) as client:
        await world.settled(1)
        (creation,) = client.asked("create", REPLICA_SETS)
        hash_ = template_hash(template(), 0)
        labels = {"app": "web", "pod-template-hash": hash_}
        assert creation.body == {
            "metadata": {
                "name": f"web-{hash_}",
                "namespace": "default",
                "labels": labels,
                "annotations": {
                    "note": "x",
                    REVISION: "1",
                    "deployment.kubernetes.io/desired-replicas": "3",
                    "deployment.kubernetes.io/max-replicas": "4",
                },
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                     "uid": "uid-web", "controller": True, "blockOwnerDeletion": True}
                ],
            },
            "spec": {
                "replicas": 3,
                "minReadySeconds": 4,
                "selector": {"matchLabels": labels},
                "template": {**template(), "metadata": {"labels": labels}},
            },
        }  # fmt: skip
        message = f"Scaled up replica set web-{hash_} from 0 to 3"
        assert ("web", "Normal", "ScalingReplicaSet", message) in client.events
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        assert obj["metadata"]["annotations"][REVISION] == "1"
        progressing = condition(client, "Progressing")
        assert (progressing["status"], progressing["reason"], progressing["message"]) == (
            "True", "NewReplicaSetCreated", f'Created new replica set "web-{hash_}"',
        )  # fmt: skip
        first = client.asked("patch", DEPLOYMENTS)[0]
        assert first.more == {"subresource": "status"}
        assert first.body["metadata"].keys() == {"uid", "resourceVersion", "annotations"}


async def test_a_finished_rollout_says_so_and_is_quiet(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(2))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        progressing = condition(client, "Progressing")
        assert (progressing["status"], progressing["reason"]) == ("True", "NewReplicaSetAvailable")
        assert condition(client, "Available")["status"] == "True"
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        assert {key: obj["status"][key] for key in (
            "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
            "observedGeneration")} == {
            "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "observedGeneration": 1}  # fmt: skip
        client.requests.clear()
        client.put(DEPLOYMENTS, obj)
        await world.settled(1000)
        assert client.writes == []


async def test_a_rolling_update_moves_one_by_one_and_never_below(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(2))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        change_spec(client, deployment(2, "b"))
        await world.settled(1)
        steps = [sizes(client)]
        for _ in range(8):
            grown(client)
            await world.settled(1)
            if sizes(client) != steps[-1]:
                steps.append(sizes(client))
        assert steps[0] == {"a": 2, "b": 1}
        assert steps[-1] == {"a": 0, "b": 2}
        assert all(2 <= step["a"] + step["b"] <= 3 for step in steps)
        new = client.find(REPLICA_SETS, name_of("b"))
        assert new is not None
        assert new["metadata"]["annotations"][REVISION] == "2"
        messages = {event[3] for event in client.events if event[2] == "ScalingReplicaSet"}
        assert f"Scaled down replica set {name_of('a')} from 1 to 0" in messages
        assert f"Scaled up replica set {name_of('b')} from 1 to 2" in messages


async def test_the_new_set_grows_only_as_far_as_the_old_one_leaves_room(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(2))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        change_spec(client, deployment(2, "b"))
        await world.settled(1)
        # The new pod never becomes available: nothing moves any more.
        for _ in range(3):
            replica_set = client.find(REPLICA_SETS, name_of("b"))
            assert replica_set is not None
            client.put(REPLICA_SETS, {**replica_set, "status": {"replicas": 1}})
            await world.settled(1)
        assert sizes(client) == {"a": 2, "b": 1}


async def test_recreate_waits_for_the_last_old_pod(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(2, strategy="Recreate"))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name_of("a"),
                  "uid": client.all(REPLICA_SETS)[0]["metadata"]["uid"],
                  "controller": True}]  # fmt: skip
        for name in ("x", "y"):
            client.put(PODS, {"metadata": {"name": name, "ownerReferences": owner}, "spec": {},
                              "status": {"phase": "Running"}})  # fmt: skip
        change_spec(client, deployment(2, "b", strategy="Recreate"))
        await world.settled(1)
        grown(client)
        await world.settled(1)
        assert sizes(client) == {"a": 0}
        client.drop(PODS, "x")
        await world.settled(1)
        assert sizes(client) == {"a": 0}
        ended = client.find(PODS, "y")
        assert ended is not None
        client.put(PODS, {**ended, "status": {"phase": "Succeeded"}})
        await world.settled(1)
        assert sizes(client) == {"a": 0, "b": 2}


@pytest.mark.parametrize("strategy", ["Recreate", "RollingUpdate"])
async def test_a_change_of_size_resizes_without_a_new_set(world: World, strategy: str) -> None:
    world.client.put(DEPLOYMENTS, deployment(2, strategy=strategy))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        change_spec(client, deployment(5, strategy=strategy))
        await world.settled(1)
        assert sizes(client) == {"a": 5}
        annotations = client.all(REPLICA_SETS)[0]["metadata"]["annotations"]
        assert annotations["deployment.kubernetes.io/desired-replicas"] == "5"
        surge = 1 if strategy == "RollingUpdate" else 0
        assert annotations["deployment.kubernetes.io/max-replicas"] == str(5 + surge)
        assert len(client.asked("create", REPLICA_SETS)) == 1


async def test_a_paused_deployment_is_resized_reports_and_drops_old_revisions(
    world: World,
) -> None:
    world.client.put(DEPLOYMENTS, deployment(1, history=0))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        client.put(DEPLOYMENTS, {**obj, "spec": deployment(3, "b", paused=True, history=0)["spec"]})
        await world.settled(1)
        assert sizes(client) == {"a": 3}
        progressing = condition(client, "Progressing")
        assert (progressing["status"], progressing["reason"], progressing["message"]) == (
            "Unknown", "DeploymentPaused", "Deployment is paused",
        )  # fmt: skip
        grown(client)
        await world.settled(1)
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        assert obj["status"]["availableReplicas"] == 3
        client.put(DEPLOYMENTS, {**obj, "spec": deployment(3, "b", history=0)["spec"]})
        await world.settled(1)
        assert sizes(client)["b"] == 1
        for _ in range(10):
            grown(client)
            await world.settled(1)
        # No history is kept: the old set goes once the rollout is complete.
        assert sizes(client) == {"b": 3}
        (deletion,) = client.asked("delete", REPLICA_SETS)
        assert deletion.key == f"default/{name_of('a')}"
        assert deletion.more["uid"].startswith("u")


async def test_a_rollout_that_gets_nowhere_is_late_after_its_deadline(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1, deadline=100))
    async with reconciling(world) as client:
        await world.settled(99)
        assert condition(client, "Progressing")["reason"] != "ProgressDeadlineExceeded"
        await world.settled(3)
        late = condition(client, "Progressing")
        assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")
        assert late["message"] == f'ReplicaSet "{name_of("a")}" has timed out progressing.'
        grown(client)
        await world.settled(1)
        assert condition(client, "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_without_a_deadline_no_progress_is_reported(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1, deadline=None))
    async with reconciling(world) as client:
        await world.settled(1000)
        assert condition(client, "Progressing") == {}
        assert condition(client, "Available")["status"] == "False"


@pytest.mark.failing_reconciles
async def test_a_set_that_is_refused_is_reported_and_tried_again(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    world.client.failures.append(("create", REPLICA_SETS.plural, ForbiddenError("quota")))
    async with reconciling(world) as client:
        await world.settled(1)
        message = f'Failed to create new replica set "{name_of("a")}": quota'
        assert ("web", "Warning", "ReplicaSetCreateError", message) in client.events
        refused = client.asked("patch", DEPLOYMENTS)[0].body["status"]["conditions"][0]
        assert (refused["type"], refused["status"], refused["reason"], refused["message"]) == (
            "Progressing", "False", "ReplicaSetCreateError", message,
        )  # fmt: skip
        assert sizes(client) == {"a": 1}


@pytest.mark.failing_reconciles
async def test_in_an_ending_namespace_a_refusal_is_not_reported(world: World) -> None:
    ending = ForbiddenError("ending", details={"causes": [{"reason": "NamespaceTerminating"}]})
    world.client.put(DEPLOYMENTS, deployment(1))
    world.client.failures += [("create", REPLICA_SETS.plural, ending)] * 50
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.events == []
        assert client.asked("patch", DEPLOYMENTS) == []


async def test_a_name_that_another_template_has_is_counted_as_a_collision(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    other = {
        "metadata": {"name": name_of("a"), "namespace": "default", "uid": "uid-other"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}},
                 "template": template("z")},
        "status": {},
    }  # fmt: skip
    world.client.put(REPLICA_SETS, other)
    async with reconciling(world) as client:
        await world.settled(1)
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        assert obj["status"]["collisionCount"] == 1
        assert client.find(REPLICA_SETS, name_of("a", 1)) is not None
        assert client.find(REPLICA_SETS, name_of("a")) is not None


async def test_a_set_that_the_copy_does_not_know_yet_is_taken_as_it_is(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        known = client.find(REPLICA_SETS, name_of("a"))
        assert known is not None
        # Another deployment's start: the set is there, and no watch event has come.
        client.send(REPLICA_SETS, "DELETED", known)
        await world.settled(1)
        client.requests.clear()
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        client.put(DEPLOYMENTS, {**obj, "x": 1})
        await world.settled(1)
        assert client.asked("get", REPLICA_SETS)
        assert "collisionCount" not in client.find(DEPLOYMENTS, "web")["status"]  # type: ignore[index]
        assert sizes(client) == {"a": 1}


async def test_orphan_sets_that_match_are_adopted_and_others_not(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        for name, labels in (("mine", {"app": "web"}), ("other", {"app": "x"})):
            orphan = {
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "spec": {"replicas": 0, "selector": {"matchLabels": labels},
                         "template": template("z")},
                "status": {},
            }  # fmt: skip
            client.put(REPLICA_SETS, orphan)
        await world.settled(1)
        mine, other = client.find(REPLICA_SETS, "mine"), client.find(REPLICA_SETS, "other")
        assert mine is not None
        assert other is not None
        assert mine["metadata"]["ownerReferences"][0]["uid"] == "uid-web"
        assert "ownerReferences" not in other["metadata"]
        # Its labels change: it is let go, and then taken again.
        client.put(REPLICA_SETS, {**mine, "metadata": {**mine["metadata"], "labels": {}}})
        await world.settled(1)
        freed = client.find(REPLICA_SETS, "mine")
        assert freed is not None
        assert freed["metadata"]["ownerReferences"] == []
        client.put(REPLICA_SETS, {**freed, "metadata": {**freed["metadata"],
                                                        "labels": {"app": "web"}}})  # fmt: skip
        await world.settled(1)
        again = client.find(REPLICA_SETS, "mine")
        assert again is not None
        assert again["metadata"]["ownerReferences"][0]["uid"] == "uid-web"


async def test_a_deleted_deployment_only_reports(world: World) -> None:
    going = deployment(3, meta={"deletionTimestamp": NOW, "finalizers": ["foregroundDeletion"]})
    world.client.put(DEPLOYMENTS, going)
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.asked("create") == []
        assert condition(client, "Available")["status"] == "False"


async def test_a_changed_readiness_time_reaches_the_set(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    async with reconciling(world) as client:
        grown(client)
        await world.settled(1)
        obj = client.find(DEPLOYMENTS, "web")
        assert obj is not None
        obj["metadata"]["annotations"]["note"] = "y"
        client.put(DEPLOYMENTS, {**obj, "spec": deployment(1, minReadySeconds=7)["spec"]})
        await world.settled(1)
        new = client.find(REPLICA_SETS, name_of("a"))
        assert new is not None
        assert new["spec"]["minReadySeconds"] == 7
        assert new["metadata"]["annotations"]["note"] == "y"


async def test_a_deployment_deleted_while_it_is_written_is_no_failure(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    async with reconciling(world) as client:
        await world.settled(1)
        client.drop_unseen(DEPLOYMENTS, "web")
        grown(client)
        await world.settled(1)
        assert client.asked("patch", DEPLOYMENTS)


async def test_a_sets_failure_is_the_deployments(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment(1))
    async with reconciling(world) as client:
        replica_set = client.find(REPLICA_SETS, name_of("a"))
        assert replica_set is not None
        failing = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                   "message": "quota", "lastTransitionTime": NOW}  # fmt: skip
        client.put(
            REPLICA_SETS, {**replica_set, "status": {"replicas": 0, "conditions": [failing]}}
        )
        await world.settled(1)
        assert condition(client, "ReplicaFailure")["message"] == "quota"
        grown(client)
        await world.settled(1)
        assert condition(client, "ReplicaFailure") == {}
