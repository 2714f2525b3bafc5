"""Garbage collection loop: what is deleted, orphaned or kept, and what is read live first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ConflictError, NotFoundError
from moorage.controllers.garbage import GarbageCollector
from moorage.controllers.objects import NODES
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS, PartialObject, Resource
from tests.controllers.memory import MemoryClient, World

SINCE = "2026-01-01T00:00:00Z"
VERBS = ["create", "delete", "get", "list", "watch"]
CORE = (
    ("configmaps", "ConfigMap", True), ("secrets", "Secret", True), ("nodes", "Node", False),
    ("namespaces", "Namespace", False), ("events", "Event", True),
)  # fmt: skip


@pytest.fixture
def world() -> World:
    world = World()
    resources = [
        {"name": name, "kind": kind, "namespaced": is_namespaced, "verbs": VERBS}
        for name, kind, is_namespaced in CORE
    ]
    answers = world.client.answers
    answers["GET", "/api"] = b'{"versions": ["v1"]}'
    answers["GET", "/apis"] = b'{"groups": []}'
    answers["GET", "/api/v1"] = json.dumps({"resources": resources}).encode()
    return world


@asynccontextmanager
async def collecting(world: World) -> AsyncIterator[tuple[MemoryClient, list[tuple[str, str]]]]:
    removed: list[tuple[str, str]] = []
    collector = GarbageCollector(
        world.client, world.informers, world.recorder,
        lambda resource, namespace: removed.append((resource.plural, namespace)), world.clock,
    )  # fmt: skip
    async with world.running(collector.run(workers=3)) as client:
        yield client, removed


def owner(
    name: str, uid: str = "", *, kind: str = "ConfigMap", blocks: bool = False, version: str = "v1"
) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid or name}
    return {**reference, "blockOwnerDeletion": True} if blocks else reference


def thing(name: str, *owners: dict[str, Any], in_: str = "default", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": in_, "ownerReferences": list(owners), **meta}}


def foreground(name: str, *owners: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return thing(name, *owners, deletionTimestamp=SINCE, finalizers=["foregroundDeletion"], **meta)


@pytest.mark.parametrize("nodes", [(), ("n1",)])
async def test_what_other_controllers_watch_is_not_watched_again(
    world: World, nodes: tuple[str, ...]
) -> None:
    for name in nodes:
        world.client.put(NODES, {"metadata": {"name": name}})
    async with collecting(world) as (client, _):
        watched = {plural: client.watch_count(plural) for plural, _, _ in CORE}
    assert watched == {"configmaps": 1, "secrets": 1, "nodes": 1, "namespaces": 1, "events": 0}


async def test_what_lost_its_only_owner_goes_and_the_rest_stays(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    world.client.put(CONFIG_MAPS, thing("b"))
    world.client.put(SECRETS, thing("of-a", owner("a")))
    world.client.put(SECRETS, thing("of-b", owner("b")))
    world.client.put(SECRETS, thing("of-both", owner("a"), owner("b")))
    world.client.put(SECRETS, thing("free"))
    async with collecting(world) as (client, removed):
        assert client.writes == []
        version = client.find(SECRETS, "of-a")["metadata"]["resourceVersion"]  # type: ignore[index]
        client.drop(CONFIG_MAPS, "a")
        await world.settled(1)
        assert client.names(SECRETS) == ["free", "of-b", "of-both"]
        (deletion,) = client.asked("delete")
        assert deletion.more == {
            "uid": "of-a", "resource_version": version, "propagation_policy": "Background",
        }  # fmt: skip
        both = client.find(SECRETS, "of-both")
        assert both is not None
        assert [reference["uid"] for reference in both["metadata"]["ownerReferences"]] == ["b"]
        (patch,) = client.asked("patch")
        assert patch.body["metadata"].keys() == {"uid", "resourceVersion", "ownerReferences"}
        assert removed == [("configmaps", "default"), ("secrets", "default")]


async def test_an_owner_of_that_name_and_another_uid_is_another(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a", uid="second"))
    world.client.put(SECRETS, thing("of-first", owner("a", "first")))
    world.client.put(SECRETS, thing("of-second", owner("a", "second")))
    async with collecting(world) as (client, _):
        assert client.names(SECRETS) == ["of-second"]
        client.put(CONFIG_MAPS, thing("a", uid="third"))
        await world.settled(1)
        assert client.names(SECRETS) == []


async def test_the_server_is_asked_before_an_owner_counts_as_gone(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("other"))
    async with collecting(world) as (client, _):
        client.put_unseen(CONFIG_MAPS, {"metadata": {"name": "late", "uid": "late"}})
        client.put(SECRETS, thing("s", owner("late")))
        await world.settled(1)
        assert client.names(SECRETS) == ["s"]
        assert "default/late" in {request.key for request in client.asked("get", CONFIG_MAPS)}


async def test_an_owner_that_was_gone_once_is_not_asked_for_again(world: World) -> None:
    async with collecting(world) as (client, _):
        for name in ("s", "t"):
            client.put(SECRETS, thing(name, owner("gone")))
            await world.settled(1)
        assert client.names(SECRETS) == []
        assert [request.key for request in client.asked("get", CONFIG_MAPS)] == ["default/gone"]


async def test_the_live_object_decides_not_the_copy(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    for name in ("freed", "replaced", "vanished"):
        world.client.put(SECRETS, thing(name, owner("a")))
    async with collecting(world) as (client, _):
        for name, change in (("freed", {"ownerReferences": []}), ("replaced", {"uid": "another"})):
            live = client.find(SECRETS, name)
            assert live is not None
            client.put_unseen(SECRETS, {"metadata": {**live["metadata"], **change}})
        client.drop_unseen(SECRETS, "vanished")
        client.drop(CONFIG_MAPS, "a")
        await world.settled(1)
        assert client.names(SECRETS) == ["freed", "replaced"]
        assert client.asked("delete") == []


async def test_foreground_dependents_that_block_go_first(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    world.client.put(SECRETS, thing("blocks", owner("a", blocks=True), finalizers=["x/y"]))
    world.client.put(SECRETS, thing("not", owner("a")))
    async with collecting(world) as (client, _):

        async def delete(_resource: Any, name: str, *_: Any, **more: Any) -> None:
            client.requests.append((name, more["propagation_policy"]))  # type: ignore[arg-type]

        client.delete = delete  # type: ignore[method-assign,assignment]  # it records
        client.put(CONFIG_MAPS, foreground("a"))
        await world.settled(1)
        asked = {request for request in client.requests if isinstance(request, tuple)}
        assert asked == {("blocks", "Background"), ("not", "Background")}
        owner_ = client.find(CONFIG_MAPS, "a")
        assert owner_ is not None
        assert owner_["metadata"]["finalizers"] == ["foregroundDeletion"]
        client.drop(SECRETS, "blocks")
        await world.settled(1)
        assert client.find(CONFIG_MAPS, "a") is None


async def test_an_owner_is_free_when_the_dependent_blocks_no_more(world: World) -> None:
    leaving = thing("s", owner("a", blocks=True), deletionTimestamp=SINCE, finalizers=["x/y"])
    world.client.put(CONFIG_MAPS, foreground("a"))
    world.client.put(SECRETS, leaving)
    async with collecting(world) as (client, _):
        held = client.find(CONFIG_MAPS, "a")
        assert held is not None
        assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
        client.put(SECRETS, {"metadata": {**leaving["metadata"],
                                          "ownerReferences": [owner("a")]}})  # fmt: skip
        await world.settled(1)
        assert client.find(CONFIG_MAPS, "a") is None


async def test_dependents_with_dependents_are_deleted_in_the_foreground_too(world: World) -> None:
    world.client.put(CONFIG_MAPS, foreground("a"))
    world.client.put(SECRETS, thing("middle", owner("a", blocks=True)))
    world.client.put(SECRETS, thing("leaf", owner("middle", kind="Secret", blocks=True)))
    async with collecting(world) as (client, _):
        await world.settled(1)
        first = next(
            request for request in client.asked("delete") if request.key.endswith("middle")
        )
        assert first.more["propagation_policy"] == "Foreground"


async def test_a_circle_of_owners_stops_blocking(world: World) -> None:
    world.client.put(CONFIG_MAPS, foreground("a", owner("s", kind="Secret", blocks=True)))
    world.client.put(SECRETS, thing("s", owner("a", blocks=True)))
    async with collecting(world) as (client, _):
        await world.settled(1)
        patch = next(request for request in client.asked("patch") if request.key == "default/s")
        (reference,) = patch.body["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["blockOwnerDeletion"]) == ("a", False)
        deletion = next(request for request in client.asked("delete") if request.key == "default/s")
        assert deletion.more["propagation_policy"] == "Foreground"


async def test_without_a_circle_the_references_stay_as_they_are(world: World) -> None:
    world.client.put(CONFIG_MAPS, foreground("a"))
    world.client.put(SECRETS, thing("s", owner("a", blocks=True)))
    world.client.put(SECRETS, thing("leaf", owner("s", kind="Secret")))
    async with collecting(world) as (client, _):
        await world.settled(1)
        assert not [request for request in client.asked("patch") if request.plural == "secrets"]


async def test_orphans_are_set_free_before_their_owner_goes(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    world.client.put(CONFIG_MAPS, thing("b"))
    for name in ("s", "t"):
        world.client.put(SECRETS, thing(name, owner("a"), owner("b")))
    async with collecting(world) as (client, _):
        client.put(CONFIG_MAPS, thing("a", deletionTimestamp=SINCE, finalizers=["orphan", "x/y"]))
        await world.settled(1)
        for name in ("s", "t"):
            secret = client.find(SECRETS, name)
            assert secret is not None
            assert [reference["uid"] for reference in secret["metadata"]["ownerReferences"]] == [
                "b"
            ]
        freed = client.find(CONFIG_MAPS, "a")
        assert freed is not None
        assert freed["metadata"]["finalizers"] == ["x/y"]
        assert [request.plural for request in client.asked("patch")][-1] == "configmaps"


async def test_owners_in_another_namespace_count_as_gone_and_an_event_says_so(
    world: World,
) -> None:
    world.client.put(CONFIG_MAPS, thing("a", in_="other"))
    world.client.put(CONFIG_MAPS, thing("mine"))
    world.client.put(SECRETS, thing("s", owner("a")))
    async with collecting(world) as (client, _):
        await world.settled(1)
        assert client.names(SECRETS) == []
        shown = "[v1/ConfigMap, namespace: default, name: a, uid: a]"
        message = f'ownerRef {shown} does not exist in namespace "default"'
        assert client.events == [("s", "Warning", "OwnerRefInvalidNamespace", message)]


async def test_a_cluster_object_with_a_namespaced_owner_stays(world: World) -> None:
    node = {"metadata": {"name": "n", "ownerReferences": [owner("a")]}, "spec": {}, "status": {}}
    world.client.put(NODES, node)
    async with collecting(world) as (client, _):
        await world.settled(100)
        assert client.names(NODES) == ["n"]
        assert [event[2] for event in client.events] == ["OwnerRefInvalidNamespace"]


async def test_a_namespaced_object_may_have_a_cluster_owner(world: World) -> None:
    world.client.put(NODES, {"metadata": {"name": "n"}, "spec": {}, "status": {}})
    world.client.put(SECRETS, thing("s", owner("n", kind="Node")))
    async with collecting(world) as (client, _):
        await world.settled(1)
        assert client.names(SECRETS) == ["s"]
        client.drop(NODES, "n")
        await world.settled(1)
        assert client.names(SECRETS) == []


@pytest.mark.failing_reconciles
async def test_an_owner_of_an_unknown_kind_keeps_its_dependent(world: World) -> None:
    world.client.put(SECRETS, thing("s", owner("a", kind="Widget", version="x.io/v1")))
    async with collecting(world) as (client, _):
        await world.settled(100)
        assert client.names(SECRETS) == ["s"]


@pytest.mark.parametrize("verb", ["delete", "patch"])
async def test_object_deleted_meanwhile_is_no_failure(world: World, verb: str) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    world.client.put(CONFIG_MAPS, thing("b"))
    owners = [owner("a")] if verb == "delete" else [owner("a"), owner("b")]
    world.client.put(SECRETS, thing("s", *owners))
    world.client.failures.append((verb, SECRETS.plural, NotFoundError.of("secrets", "s")))
    async with collecting(world) as (client, _):
        client.drop(CONFIG_MAPS, "a")
        await world.settled(1)
        assert len(client.asked(verb, SECRETS)) == 1


async def test_a_finalizer_whose_object_has_gone_is_no_failure(world: World) -> None:
    gone = NotFoundError.of("configmaps", "a")
    world.client.failures.append(("patch", CONFIG_MAPS.plural, gone))
    world.client.put(CONFIG_MAPS, foreground("a"))
    async with collecting(world) as (client, _):
        await world.settled(1)
        assert len(client.asked("patch")) == 1


async def test_a_conflict_is_tried_again_with_the_live_object(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    world.client.put(SECRETS, thing("s", owner("a")))
    world.client.failures.append(("delete", SECRETS.plural, ConflictError("newer")))
    async with collecting(world) as (client, _):
        client.drop(CONFIG_MAPS, "a")
        await world.settled(1)
        assert client.names(SECRETS) == []


async def test_changes_other_than_owners_cause_no_requests(world: World) -> None:
    world.client.put(CONFIG_MAPS, thing("a"))
    world.client.put(SECRETS, thing("s", owner("a")))
    async with collecting(world) as (client, removed):
        client.requests.clear()
        client.put(SECRETS, thing("s", owner("a"), labels={"a": "b"}))
        await world.settled(1)
        assert client.requests == []
        assert removed == []


async def test_removals_are_announced_by_namespace(world: World) -> None:
    world.client.put(SECRETS, thing("s", in_="one"))
    world.client.put(NODES, {"metadata": {"name": "n"}, "spec": {}, "status": {}})
    async with collecting(world) as (client, removed):
        client.drop(NODES, "n")
        client.put(SECRETS, thing("s", in_="one", uid="another"))
        await world.settled()
        client.drop(SECRETS, "s", "one")
        await world.settled()
        assert removed == [("secrets", "one")] * 2


async def test_discovery_that_fails_is_tried_again(world: World) -> None:
    good = world.client.answers["GET", "/apis"]
    world.client.answers["GET", "/apis"] = NotFoundError("not yet")
    world.client.put(SECRETS, thing("s", owner("gone")))
    async with collecting(world) as (client, _):
        assert client.names(SECRETS) == ["s"]
        world.client.answers["GET", "/apis"] = good
        await world.settled(11)
        assert client.names(SECRETS) == []


WIDGETS = Resource("x.io", "v1", "widgets", "Widget", PartialObject)
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    PartialObject, is_namespaced=False,
)  # fmt: skip


def _serve(
    world: World, *, widgets: bool, version: str = "v1", beta: tuple[str, str] | None = None
) -> None:
    """What discovery says while there is a definition of widgets, or none.

    `beta`: plural and kind of networking.k8s.io/v1beta1.
    """
    definitions = {"name": DEFINITIONS.plural, "kind": DEFINITIONS.kind, "verbs": VERBS}
    groups = [_group(DEFINITIONS.group, "v1")]
    answers = world.client.answers
    answers["GET", f"/apis/{DEFINITIONS.api_version}"] = json.dumps(
        {"resources": [definitions]}
    ).encode()
    if widgets:
        groups.append(_group("x.io", version))
        own = {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": VERBS}
        answers["GET", f"/apis/x.io/{version}"] = json.dumps({"resources": [own]}).encode()
    if beta:
        groups.append(_group("networking.k8s.io", "v1beta1"))
        newer = {"name": beta[0], "kind": beta[1], "namespaced": False, "verbs": VERBS}
        document = json.dumps({"resources": [newer]}).encode()
        answers["GET", "/apis/networking.k8s.io/v1beta1"] = document
    answers["GET", "/apis"] = json.dumps({"groups": groups}).encode()


def _group(name: str, version: str) -> dict[str, Any]:
    return {
        "name": name,
        "versions": [{"groupVersion": f"{name}/{version}", "version": version}],
    }


async def test_a_kind_that_is_served_in_an_older_version_alone_keeps_nothing_waiting(
    world: World,
) -> None:
    """Others watch it in a version that the server lacks, and wait for that."""
    world.client.answers["GET", "/apis/networking.k8s.io/v1"] = NotFoundError("no v1")
    _serve(world, widgets=False, beta=("ipaddresses", "IPAddress"))
    world.client.put(SECRETS, thing("of-gone", owner("gone")))
    async with collecting(world) as (client, _):
        assert client.names(SECRETS) == []
        assert client.watch_count("ipaddresses") == 1


async def test_a_shared_kind_that_goes_and_comes_back_is_handled_once(world: World) -> None:
    _serve(world, widgets=False)
    core = world.client.answers["GET", "/api/v1"]
    async with collecting(world) as (client, _):
        handlers = len(world.informers.nodes._handlers)
        for number, answer in enumerate((b'{"resources": []}', core)):
            client.answers["GET", "/api/v1"] = answer
            client.put(DEFINITIONS, {"metadata": {"name": f"d{number}"}})
            await world.settled(1)
            await world.settled(1)
        assert len(client.asked("list", CONFIG_MAPS)) == 2
        assert len(world.informers.nodes._handlers) == handlers


async def test_a_kind_is_watched_in_the_version_that_is_served_now(world: World) -> None:
    _serve(world, widgets=True, version="v1alpha1")
    async with collecting(world) as (client, _):
        assert client.watch_count("widgets") == 1
        _serve(world, widgets=True)
        client.put(DEFINITIONS, {"metadata": {"name": "widgets.x.io"}})
        await world.settled(1)
        await world.settled(1)
        assert len(client.asked("list", WIDGETS)) == 2


@pytest.mark.failing_reconciles
async def test_kinds_that_come_later_own_objects_too(world: World) -> None:
    _serve(world, widgets=False)
    async with collecting(world) as (client, removed):
        client.put(SECRETS, thing("of-w", owner("w", kind="Widget", version="x.io/v1")))
        client.put(SECRETS, thing("of-gone", owner("gone", kind="Widget", version="x.io/v1")))
        await world.settled(1)
        assert client.names(SECRETS) == ["of-gone", "of-w"]
        _serve(world, widgets=True)
        client.put(WIDGETS, thing("w"))
        client.put(DEFINITIONS, {"metadata": {"name": "widgets.x.io"}})
        await world.settled(1)
        await world.settled(1)
        assert client.names(SECRETS) == ["of-w"]
        client.drop(WIDGETS, "w")
        await world.settled(1)
        assert client.names(SECRETS) == []
        assert ("widgets", "default") in removed


async def test_kinds_that_go_are_not_watched_any_more(world: World) -> None:
    _serve(world, widgets=True)
    world.client.put(WIDGETS, thing("w"))
    world.client.put(SECRETS, thing("of-w", owner("w", kind="Widget", version="x.io/v1")))
    async with collecting(world) as (client, _):
        assert client.watch_count("widgets") == 1
        _serve(world, widgets=False)
        client.put(DEFINITIONS, {"metadata": {"name": "widgets.x.io"}})
        await world.settled(1)
        await world.settled(1)
        client.put(WIDGETS, thing("late"))
        await world.settled(1)
        assert client.unread("widgets") == 1
        # What it owned stays: whether the owner is gone cannot be known.
        assert client.names(SECRETS) == ["of-w"]


async def test_kinds_of_other_servers_are_found_in_time(world: World) -> None:
    _serve(world, widgets=False)
    async with collecting(world) as (client, _):
        _serve(world, widgets=True)
        await world.settled(298)
        assert client.watch_count("widgets") == 0
        await world.settled(3)
        await world.settled(1)
        assert client.watch_count("widgets") == 1


async def test_kinds_that_cannot_be_discovered_meanwhile_stay(world: World) -> None:
    _serve(world, widgets=True)
    world.client.put(WIDGETS, thing("w"))
    world.client.put(SECRETS, thing("of-w", owner("w", kind="Widget", version="x.io/v1")))
    async with collecting(world) as (client, _):
        client.answers["GET", "/apis/x.io/v1"] = ConflictError("not now")
        client.put(DEFINITIONS, {"metadata": {"name": "widgets.x.io"}})
        await world.settled(1)
        await world.settled(1)
        client.drop(WIDGETS, "w")
        await world.settled(1)
        assert client.names(SECRETS) == []
