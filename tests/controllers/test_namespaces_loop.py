"""The namespace loop: what is deleted, in which order, and when the namespace goes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ForbiddenError, MethodNotAllowedError, NotFoundError
from moorage.controllers.namespaces import NamespaceController, Progress, conditions_after
from moorage.controllers.objects import PODS
from moorage.wire.client.resources import CONFIG_MAPS, NAMESPACES, SECRETS
from tests.controllers.memory import MemoryClient, World
from tests.controllers.objects import NOW

SINCE = "2026-01-01T00:00:00Z"
ALL = ["create", "delete", "deletecollection", "get", "list", "watch"]


def served(world: World, *resources: dict[str, Any], failing: bool = False) -> None:
    """Discovery documents: one core group, and one that may not answer."""
    answers = world.client.answers
    answers["GET", "/api"] = json.dumps({"versions": ["v1"]}).encode()
    groups = [
        {"name": name, "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}]}
        for name in ("g.io", "h.io")
    ]
    answers["GET", "/apis"] = json.dumps({"groups": groups}).encode()
    answers["GET", "/api/v1"] = json.dumps({"resources": list(resources)}).encode()
    answers["GET", "/apis/g.io/v1"] = (
        ForbiddenError("broken") if failing else json.dumps({"resources": []}).encode()
    )
    things = {"name": "things", "kind": "Thing", "namespaced": True, "verbs": ["list"]}
    answers["GET", "/apis/h.io/v1"] = json.dumps({"resources": [things]}).encode()


def resource(name: str, kind: str, verbs: list[str] = ALL, namespaced: bool = True) -> Any:
    return {"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs}


CORE = (
    resource("pods", "Pod"),
    resource("pods/status", "Pod", ["get", "patch"]),
    resource("configmaps", "ConfigMap"),
    resource("secrets", "Secret", ["create", "delete", "get", "list", "watch"]),
    resource("bindings", "Binding", ["create"]),
    resource("nodes", "Node", namespaced=False),
)


def namespace(
    name: str, *, ending: bool = True, finalizers: tuple[str, ...] = ("kubernetes",)
) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", **({"deletionTimestamp": SINCE} if ending else {})}
    return {"metadata": meta, "spec": {"finalizers": list(finalizers)}, "status": {}}


def thing(name: str, in_: str = "old", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": in_, **meta}}


@pytest.fixture
def world() -> World:
    world = World()
    served(world, *CORE)
    return world


@asynccontextmanager
async def emptying(world: World) -> AsyncIterator[tuple[MemoryClient, NamespaceController]]:
    for obj in world.client.all(NAMESPACES):
        path = f"/api/v1/namespaces/{obj['metadata']['name']}"
        world.client.answers.setdefault(("GET", path), json.dumps(obj).encode())
    controller = NamespaceController(world.client, world.informers, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client, controller


async def test_pods_go_first_then_everything_else_then_the_namespace(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old", finalizers=("kubernetes", "mine")))
    world.client.put(NAMESPACES, namespace("stays", ending=False))
    world.client.put(PODS, {**thing("p"), "spec": {}, "status": {}})
    for in_ in ("old", "stays"):
        world.client.put(CONFIG_MAPS, thing("c", in_))
        world.client.put(SECRETS, thing("a", in_))
    async with emptying(world) as (client, _):
        asked = [(write.verb, write.plural) for write in client.writes]
        assert asked[:3] == [
            ("deletecollection", "pods"), ("deletecollection", "configmaps"), ("delete", "secrets"),
        ]  # fmt: skip
        (deletion,) = client.asked("delete", SECRETS)
        assert deletion.more == {"propagation_policy": "Background"}
        assert [config_map["metadata"]["namespace"] for config_map in client.all(CONFIG_MAPS)] == [
            "stays"
        ]
        assert [secret["metadata"]["namespace"] for secret in client.all(SECRETS)] == ["stays"]
        release = client.asked("update")[0]
        assert (release.key, release.more) == ("old", {"subresource": "finalize"})
        assert release.body["spec"]["finalizers"] == ["mine"]
        report = client.asked("patch", NAMESPACES)[0]
        assert report.body["metadata"] == {"uid": "uid-old"}
        assert {condition["status"] for condition in report.body["status"]["conditions"]} == {
            "False"
        }


async def test_while_a_pod_is_left_nothing_else_goes(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    pod = {
        **thing("p", finalizers=["x/y"], deletionGracePeriodSeconds=60),
        "spec": {},
        "status": {},
    }
    world.client.put(PODS, pod)
    world.client.put(CONFIG_MAPS, thing("c"))
    async with emptying(world) as (client, controller):
        assert client.names(CONFIG_MAPS) == ["c"]
        assert client.asked("update") == []
        obj = client.find(NAMESPACES, "old")
        assert obj is not None
        troubles = {condition["type"] for condition in obj["status"]["conditions"]
                    if condition["status"] == "True"}  # fmt: skip
        assert troubles == {"NamespaceContentRemaining", "NamespaceFinalizersRemaining"}
        client.requests.clear()
        # With a finalizer the time it takes is unknown: half of 15 s, and one.
        await world.settled(7.9)
        assert client.writes == []
        await world.settled(0.2)
        assert client.asked("deletecollection", PODS)
        client.drop(PODS, "p", "old")
        await world.settled()
        controller.object_removed(PODS, "old")
        await world.settled()
        assert client.names(CONFIG_MAPS) == []
        assert client.asked("update")


async def test_pods_are_waited_for_half_their_grace_period(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    for name, grace_s in (("p", 10), ("q", 60)):
        slow = thing(name, deletionGracePeriodSeconds=grace_s)
        world.client.put(PODS, {**slow, "spec": {}, "status": {}})

    kept = world.client.all(PODS)

    async def keeps(*_: Any, **__: Any) -> None:
        world.client.requests.append("collection")

    world.client.delete_collection = keeps
    async with emptying(world) as (client, _):
        # The report of the first round is an event that leads to a second one.
        client.requests.clear()
        await world.settled(30)
        assert client.requests == []
        await world.settled(1.5)
        assert client.requests.count("collection") == 1  # type: ignore[arg-type]
        assert client.all(PODS) == kept


@pytest.mark.parametrize("error", [NotFoundError("gone"), MethodNotAllowedError("no")])
async def test_what_is_not_served_any_more_holds_nothing_up(world: World, error: Exception) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    world.client.failures.append(("deletecollection", CONFIG_MAPS.plural, error))
    async with emptying(world) as (client, _):
        assert client.asked("update")


async def test_an_object_that_goes_by_itself_is_no_failure(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    for name in ("a", "b"):
        world.client.put(SECRETS, thing(name))
    world.client.failures.append(("delete", SECRETS.plural, NotFoundError.of("secrets", "a")))
    async with emptying(world) as (client, _):
        assert [request.key for request in client.asked("delete", SECRETS)][:2] == [
            "old/a",
            "old/b",
        ]


@pytest.mark.failing_reconciles
async def test_a_refusal_is_reported_and_tried_again(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    world.client.put(CONFIG_MAPS, thing("c"))
    world.client.failures.append(("deletecollection", CONFIG_MAPS.plural, ForbiddenError("no")))
    async with emptying(world) as (client, _):
        report = client.asked("patch", NAMESPACES)[0].body["status"]["conditions"]
        failed = {
            condition["type"]: condition["message"]
            for condition in report
            if condition["status"] == "True"
        }
        assert failed == {
            "NamespaceDeletionContentFailure": (
                "Failed to delete all resource types, 1 remaining: no"
            )
        }
        verbs = [write.verb for write in client.writes]
        assert verbs.index("update") > verbs.index("patch")
        assert len(client.asked("deletecollection", CONFIG_MAPS)) >= 2


@pytest.mark.failing_reconciles
async def test_a_group_that_does_not_answer_keeps_the_namespace_but_not_its_content(
    world: World,
) -> None:
    served(world, *CORE, failing=True)
    world.client.put(NAMESPACES, namespace("old"))
    world.client.put(CONFIG_MAPS, thing("c"))
    async with emptying(world) as (client, _):
        assert client.names(CONFIG_MAPS) == []
        assert client.asked("update") == []
        report = client.asked("patch", NAMESPACES)[0].body["status"]["conditions"]
        (failed,) = [condition for condition in report if condition["status"] == "True"]
        assert failed["type"] == "NamespaceDeletionDiscoveryFailure"
        assert failed["message"].endswith("g.io/v1: broken")
        served(world, *CORE)
        await world.settled(1)
        assert client.asked("update")


async def test_only_ending_namespaces_that_we_hold_are_emptied(world: World) -> None:
    world.client.put(NAMESPACES, namespace("open", ending=False))
    world.client.put(NAMESPACES, namespace("done", finalizers=("mine",)))
    async with emptying(world) as (client, controller):
        for name in ("open", "done", "unknown"):
            controller.object_removed(CONFIG_MAPS, name)
        await world.settled()
        assert client.writes == client.asked("get") == []


async def test_of_a_crowd_of_pods_only_the_last_one_matters(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    for name in ("p", "q"):
        world.client.put(PODS, {**thing(name, finalizers=["x/y"]), "spec": {}, "status": {}})
    async with emptying(world) as (client, controller):
        client.requests.clear()
        client.drop(PODS, "p", "old")
        await world.settled()
        controller.object_removed(PODS, "old")
        await world.settled()
        assert client.requests == []
        controller.object_removed(CONFIG_MAPS, "old")
        await world.settled()
        assert client.asked("get", NAMESPACES)


async def test_a_namesake_that_came_since_is_not_released(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    successor = {"metadata": {"name": "old", "uid": "another"}, "spec": {}}
    world.client.answers["GET", "/api/v1/namespaces/old"] = json.dumps(successor).encode()
    async with emptying(world) as (client, _):
        assert client.asked("update") == []


async def test_namespace_released_by_another_client_is_no_failure(world: World) -> None:
    world.client.put(NAMESPACES, namespace("old"))
    gone = NotFoundError.of("namespaces", "old")
    world.client.failures += [("update", NAMESPACES.plural, gone)] * 9
    async with emptying(world) as (client, _):
        made = len(client.asked("update"))
        await world.settled(100)
        assert len(client.asked("update")) == made


def test_conditions_while_nothing_is_wrong() -> None:
    by_type = {
        condition["type"]: (
            condition["status"],
            condition["reason"],
            condition["message"],
            condition["lastTransitionTime"],
        )
        for condition in conditions_after((), Progress(), NOW)
    }
    stamp = "2026-01-01T12:00:00Z"
    assert by_type == {
        "NamespaceDeletionDiscoveryFailure": (
            "False", "ResourcesDiscovered", "All resources successfully discovered", stamp,
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False", "ParsedGroupVersions", "All legacy kube types successfully parsed", stamp,
        ),
        "NamespaceDeletionContentFailure": (
            "False", "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization", stamp,
        ),
        "NamespaceContentRemaining": (
            "False", "ContentRemoved", "All content successfully removed", stamp,
        ),
        "NamespaceFinalizersRemaining": (
            "False", "ContentHasNoFinalizers",
            "All content-preserving finalizers finished", stamp,
        ),
    }  # fmt: skip
