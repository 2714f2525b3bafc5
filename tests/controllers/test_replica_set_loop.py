"""The ReplicaSet loop: each pod asked for once, claims, and what is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.workloads import ReplicaSet
from moorage.controllers.informers import Informers
from moorage.controllers.objects import PODS
from moorage.controllers.replicasets import ReplicaSetController
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import REPLICA_SETS, REPLICATION_CONTROLLERS
from moorage.wire.client.rest import PatchType, UnreachableError
from tests.controllers.memory import MemoryClient, World

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(
    world: World, sets: Callable[[Informers], Informer[ReplicaSet]] = lambda all_: all_.replica_sets
) -> AsyncIterator[MemoryClient]:
    controller = ReplicaSetController(
        world.client, world.informers, sets(world.informers), world.recorder, world.clock
    )
    async with world.running(controller.run(workers=2)) as client:
        yield client


def replica_set(name: str, size: int, *, min_ready_s: int = 0, **meta: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1,
                     **meta},
        "spec": {
            "replicas": size,
            "minReadySeconds": min_ready_s,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "labels": {**labels, "more": "1"}, "annotations": {"a": "b"},
                    "finalizers": ["x/y"], "name": "ignored",
                },
                "spec": {"containers": [{"name": "c"}]},
            },
        },
        "status": {"replicas": 0},
    }  # fmt: skip


def owned(by: str, *, kind: str = "ReplicaSet", uid: str = "", controls: bool = True) -> Any:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": by, "uid": uid or f"uid-{by}",
             "controller": controls}]  # fmt: skip


def pod(
    name: str, app: str, *, ready: bool = True, phase: str = "Running", since: str = NOW,
    labels: dict[str, str] | None = None, **meta: Any,
) -> dict[str, Any]:  # fmt: skip
    condition = {
        "type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since,
    }  # fmt: skip
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}",
                     "labels": labels or {"app": app}, "creationTimestamp": NOW, **meta},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, "conditions": [condition]},
    }  # fmt: skip


def status(client: MemoryClient, name: str) -> dict[str, Any]:
    obj = client.find(REPLICA_SETS, name)
    assert obj is not None
    return dict(obj["status"])


async def test_missing_pods_are_made_from_the_template_once(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 3))
    world.client.put(REPLICA_SETS, replica_set("db", 2))
    async with reconciling(world) as client:
        await world.settled(1)
        assert len(client.asked("create", PODS)) == 5
        body = next(
            request.body for request in client.asked("create", PODS) if "web" in request.key
        )
        assert body == {
            "metadata": {
                "generateName": "web-",
                "namespace": "default",
                "labels": {"app": "web", "more": "1"},
                "annotations": {"a": "b"},
                "finalizers": ["x/y"],
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                     "uid": "uid-web", "controller": True, "blockOwnerDeletion": True}
                ],
            },
            "spec": {"containers": [{"name": "c"}]},
        }  # fmt: skip
        assert status(client, "web")["replicas"] == 3
        messages = {event[3] for event in client.events if event[2] == "SuccessfulCreate"}
        assert messages == {f"Created pod: {name}" for name in client.names(PODS)}
        await world.settled(400)
        assert len(client.asked("create", PODS)) == 5


async def test_surplus_pods_go_and_are_not_asked_for_twice(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 1))
    for number in range(4):
        world.client.put(PODS, pod(f"p{number}", "web", ownerReferences=owned("web")))
    world.client.put(PODS, pod("other", "db"))
    async with reconciling(world) as client:
        await world.settled(1)
        deletions = client.asked("delete", PODS)
        assert len(deletions) == 3
        assert all(deletion.more == {"uid": f"uid-{deletion.key[8:]}"} for deletion in deletions)
        assert "other" in client.names(PODS)
        messages = {event[3] for event in client.events if event[2] == "SuccessfulDelete"}
        assert messages == {f"Deleted pod: {deletion.key[8:]}" for deletion in deletions}


async def test_pods_that_end_or_leave_are_replaced(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 2))
    for name in ("a", "b"):
        world.client.put(PODS, pod(name, "web", ownerReferences=owned("web")))
    async with reconciling(world) as client:
        assert client.asked("create") == []
        client.put(PODS, pod("a", "web", phase="Failed", ownerReferences=owned("web")))
        await world.settled()
        assert len(client.asked("create", PODS)) == 1
        leaving = pod("b", "web", ownerReferences=owned("web"), deletionTimestamp=NOW)
        client.put(PODS, leaving)
        await world.settled()
        assert len(client.asked("create", PODS)) == 2
        assert status(client, "web")["terminatingReplicas"] == 1
        client.drop(PODS, "b")
        await world.settled()
        assert len(client.asked("create", PODS)) == 2


async def test_an_orphan_that_matches_is_adopted_and_a_released_one_let_go(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 2))
    world.client.put(PODS, pod("kept", "web", ownerReferences=owned("web")))
    async with reconciling(world) as client:
        assert len(client.asked("create", PODS)) == 1
        client.requests.clear()
        client.put(PODS, pod("orphan", "web"))
        await world.settled()
        (adoption,) = client.asked("patch", PODS)
        reference = {**owned("web")[0], "blockOwnerDeletion": True}
        assert adoption.body == {"metadata": {"ownerReferences": [reference], "uid": "uid-orphan"}}
        assert adoption.more == {"kind": PatchType.STRATEGIC}
        assert [request.key for request in client.asked("get", REPLICA_SETS)] == ["default/web"]
        # Three now: one goes.
        assert len(client.asked("delete", PODS)) == 1


async def test_pod_that_no_longer_matches_is_released(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 1))
    world.client.put(PODS, pod("a", "web", ownerReferences=owned("web")))
    async with reconciling(world) as client:
        client.put(PODS, pod("a", "web", labels={"app": "free"}, ownerReferences=owned("web")))
        await world.settled()
        (release,) = client.asked("patch", PODS)
        removal = {"$patch": "delete", "uid": "uid-web"}
        assert release.body == {"metadata": {"ownerReferences": [removal], "uid": "uid-a"}}
        assert len(client.asked("create", PODS)) == 1
        # Its labels come back: it is adopted again, and there is one too many.
        client.put(PODS, pod("a", "web"))
        await world.settled()
        assert len(client.asked("delete", PODS)) == 1


@pytest.mark.parametrize(
    "reference",
    [
        owned("web", uid="another"),
        owned("db"),
        owned("web", kind="Job"),
    ],
    ids=["an earlier namesake's", "another set's", "another kind's"],
)
async def test_what_another_controls_is_not_counted(world: World, reference: Any) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 1))
    if reference[0]["kind"] == "Job":
        reference = [{**reference[0], "uid": "uid-job"}]
    world.client.put(PODS, pod("a", "web", ownerReferences=reference))
    async with reconciling(world) as client:
        assert len(client.asked("create", PODS)) == 1
        assert client.asked("patch", PODS) == []


async def test_an_owner_that_was_replaced_meanwhile_adopts_nothing(world: World) -> None:
    changes: tuple[dict[str, Any], ...] = ({"uid": "another"}, {"deletionTimestamp": NOW})
    for changed in changes:
        world = World()
        world.client.put(REPLICA_SETS, replica_set("web", 1))
        async with reconciling(world) as client:
            live = replica_set("web", 1, resourceVersion="99", **changed)
            client.put_unseen(REPLICA_SETS, live)
            client.requests.clear()
            client.put(PODS, pod("a", "web"))
            await world.settled()
            assert client.asked("patch", PODS) == []


async def test_a_set_that_is_being_deleted_makes_nothing_but_reports(world: World) -> None:
    going = replica_set("web", 3, deletionTimestamp=NOW, finalizers=["foregroundDeletion"])
    world.client.put(REPLICA_SETS, going)
    world.client.put(PODS, pod("a", "web", ownerReferences=owned("web")))
    world.client.put(PODS, pod("orphan", "web"))
    async with reconciling(world) as client:
        assert client.asked("create", PODS) == client.asked("patch", PODS) == []
        assert status(client, "web")["replicas"] == 1


async def test_counts_are_those_of_the_active_pods(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 4, min_ready_s=10))
    full = {"app": "web", "more": "1"}
    for obj in (
        pod("a", "web", labels=full, since="2025-12-31T23:00:00Z"),
        pod("b", "web", labels=full, ready=False),
        pod("c", "web"),
        pod("d", "web", ready=False),
    ):
        obj["metadata"]["ownerReferences"] = owned("web")
        world.client.put(PODS, obj)
    async with reconciling(world) as client:
        result = status(client, "web")
        counted = {key: result.get(key) for key in
                   ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
                    "observedGeneration")}  # fmt: skip
        assert list(counted.values()) == [4, 2, 2, 1, 1]
        await world.settled(11)
        assert status(client, "web")["availableReplicas"] == 2
        (last, *_) = reversed(client.asked("patch", REPLICA_SETS))
        assert last.more == {"subresource": "status"}
        assert last.body["status"] == {"availableReplicas": 2, "replicas": 4}
        assert last.body["metadata"].keys() == {"uid", "resourceVersion"}


@pytest.mark.failing_reconciles
async def test_a_creation_that_fails_is_reported_and_tried_again(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 5))
    world.client.failures.append(("create", PODS.plural, ForbiddenError("no such account")))
    async with reconciling(world) as client:
        # One is tried first, and the other four not before that is reported.
        verbs = [(write.verb, write.plural) for write in client.writes]
        assert verbs[:2] == [("create", "pods"), ("patch", "replicasets")]
        (condition,) = client.asked("patch", REPLICA_SETS)[0].body["status"]["conditions"]
        assert condition == {
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": NOW,
            "reason": "FailedCreate", "message": "no such account",
        }  # fmt: skip
        await world.settled(1)
        event = ("web", "Warning", "FailedCreate", "Error creating: no such account")
        assert event in client.events
        assert len(client.names(PODS)) == 5
        assert not status(client, "web").get("conditions")


@pytest.mark.failing_reconciles
@pytest.mark.parametrize("error", [ForbiddenError("no"), UnreachableError("no")])
async def test_a_deletion_that_fails_is_reported_and_tried_again(
    world: World, error: Exception
) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 0))
    for name in ("a", "b"):
        world.client.put(PODS, pod(name, "web", ownerReferences=owned("web")))
    world.client.failures.append(("delete", PODS.plural, error))
    async with reconciling(world) as client:
        await world.settled(1)
        assert len(client.asked("delete", PODS)) == 3
        assert ("web", "Warning", "FailedDelete", "Error deleting: no") in client.events
        assert client.names(PODS) == []


async def test_a_pod_that_is_gone_already_is_not_waited_for(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 1))
    for name in ("a", "b"):
        world.client.put(PODS, pod(name, "web", ownerReferences=owned("web")))
    world.client.failures.append(("delete", PODS.plural, NotFoundError.of("pods", "a")))
    async with reconciling(world) as client:
        # The copy still has both, so another try is made as soon as anything changes.
        client.put(REPLICA_SETS, {**client.find(REPLICA_SETS, "web"), "x": 1})  # type: ignore[dict-item]
        await world.settled()
        assert len(client.asked("delete", PODS)) == 2
        assert len(client.names(PODS)) == 1


async def test_in_an_ending_namespace_nothing_is_made_and_nothing_fails(world: World) -> None:
    ending = ForbiddenError("ending", details={"causes": [{"reason": "NamespaceTerminating"}]})
    world.client.put(REPLICA_SETS, replica_set("web", 2))
    world.client.failures += [("create", PODS.plural, ending)] * 50
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.names(PODS) == []
        assert client.events == []
        assert not status(client, "web").get("conditions")


async def test_creations_that_never_come_back_are_waited_for_five_minutes(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 2))
    async with reconciling(world) as client:
        first = client.names(PODS)
        # The pods are lost without a word: no event says that they ever were or went.
        for name in first:
            client.drop_unseen(PODS, name)
        assert len(first) == 2
        replaced = replica_set("web", 2)
        replaced["metadata"]["uid"] = "another"
        client.put(REPLICA_SETS, replaced)
        await world.settled()
        # Another set of the same name has nothing to wait for.
        assert len(client.asked("create", PODS)) == 4


async def test_crowded_nodes_lose_their_pods_first_counting_sibling_sets(world: World) -> None:
    parent = owned("deploy", kind="Deployment")
    world.client.put(REPLICA_SETS, replica_set("web", 1, ownerReferences=parent))
    world.client.put(REPLICA_SETS, replica_set("old", 2, ownerReferences=parent))
    for name, on in (("a", "n1"), ("b", "n2")):
        result = pod(name, "web", ownerReferences=owned("web"))
        result["spec"]["nodeName"] = on
        world.client.put(PODS, result)
    for name in ("x", "y"):
        result = pod(name, "old", ownerReferences=owned("old"))
        result["spec"]["nodeName"] = "n2"
        world.client.put(PODS, result)
    async with reconciling(world) as client:
        assert [request.key for request in client.asked("delete", PODS)] == ["default/b"]


async def test_a_set_deleted_while_it_is_reported_on_is_no_failure(world: World) -> None:
    world.client.put(REPLICA_SETS, replica_set("web", 0))
    async with reconciling(world) as client:
        await world.settled()
        client.drop_unseen(REPLICA_SETS, "web")
        client.put(PODS, pod("a", "web", ownerReferences=owned("web")))
        await world.settled(1)
        assert client.asked("patch", REPLICA_SETS)


async def test_replication_controllers_are_reconciled_alike(world: World) -> None:
    wire = replica_set("web", 2)
    wire["spec"]["selector"] = wire["spec"]["selector"]["matchLabels"]
    world.client.put(REPLICATION_CONTROLLERS, wire)
    world.client.put(PODS, pod("orphan", "web"))
    async with reconciling(world, lambda all_: all_.replication_controllers) as client:
        (creation,) = client.asked("create", PODS)
        (reference,) = creation.body["metadata"]["ownerReferences"]
        assert (reference["apiVersion"], reference["kind"]) == ("v1", "ReplicationController")
        adopted = client.find(PODS, "orphan")
        assert adopted is not None
        assert [owner["name"] for owner in adopted["metadata"]["ownerReferences"]] == ["web"]
        await world.settled(1)
        (event,) = client.events
        assert event[:3] == ("web", "Normal", "SuccessfulCreate")
        wire = client.find(REPLICATION_CONTROLLERS, "web") or {}
        assert wire["status"]["replicas"] == 2
        assert "terminatingReplicas" not in wire["status"]
        wire["spec"]["replicas"] = 0
        client.put(REPLICATION_CONTROLLERS, wire)
        await world.settled(1)
        deleted = [request.key for request in client.asked("delete", PODS)]
        assert sorted(deleted) == ["default/orphan", "default/web-00001"]


async def test_a_replication_controller_without_a_selector_adopts_nothing(world: World) -> None:
    wire = replica_set("web", 0)
    del wire["spec"]["selector"]
    world.client.put(REPLICATION_CONTROLLERS, wire)
    world.client.put(PODS, pod("orphan", "web"))
    async with reconciling(world, lambda all_: all_.replication_controllers) as client:
        assert client.asked("patch", PODS) == []
