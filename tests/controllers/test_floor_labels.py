"""Floor labels: the namespaces of floors fail closed while the webhook is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ConflictError
from moorage.api.runtime_group import ENFORCE_LABEL, ENFORCED_FOR_ANNOTATION
from moorage.controllers.runtimepolicies import FloorLabelController
from moorage.wire.client.resources import CLUSTER_RUNTIME_POLICIES, NAMESPACES, RUNTIME_POLICIES
from tests.clocks import settle
from tests.controllers.memory import World

_FLOOR = {"minimumIsolation": "user-space-kernel"}


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[None]:
    controller = FloorLabelController(world.client, world.informers, world.clock)
    async with world.running(controller.run()):
        yield


def put_namespace(world: World, name: str, **labels: str) -> None:
    world.client.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}})


def put_policy(world: World, namespace: str, **spec: Any) -> None:
    metadata = {"name": "p", "namespace": namespace}
    world.client.put(RUNTIME_POLICIES, {"metadata": metadata, "spec": spec})


def put_cluster_policy(world: World, **spec: Any) -> None:
    world.client.put(CLUSTER_RUNTIME_POLICIES, {"metadata": {"name": "all"}, "spec": spec})


def marks(world: World, name: str) -> tuple[str | None, str | None]:
    namespace = world.client.find(NAMESPACES, name)
    assert namespace is not None
    meta = namespace["metadata"]
    return (
        (meta.get("labels") or {}).get(ENFORCE_LABEL),
        (meta.get("annotations") or {}).get(ENFORCED_FOR_ANNOTATION),
    )


@pytest.mark.parametrize(
    ("spec", "is_labelled"),
    [
        (_FLOOR, True),
        ({"allowedClasses": ["gvisor"]}, True),
        ({"allowedClasses": []}, True),
        ({"defaultClassName": "gvisor"}, False),
        ({"needs": ["privileged"]}, False),
        ({}, False),
    ],
)
async def test_a_floor_or_an_allow_list_labels_its_namespace(
    world: World, spec: dict[str, Any], *, is_labelled: bool
) -> None:
    put_namespace(world, "jail")
    put_namespace(world, "other")
    put_policy(world, "jail", **spec)
    async with reconciling(world):
        expected = ("true", "RuntimePolicy jail/p") if is_labelled else (None, None)
        assert marks(world, "jail") == expected
        assert marks(world, "other") == (None, None)


async def test_the_label_comes_and_goes_with_the_floor(world: World) -> None:
    put_namespace(world, "jail")
    async with reconciling(world):
        put_policy(world, "jail", **_FLOOR)
        await settle()
        assert marks(world, "jail")[0] == "true"
        put_cluster_policy(world, **_FLOOR)
        await settle()
        both = "ClusterRuntimePolicy all, RuntimePolicy jail/p"
        assert marks(world, "jail") == ("true", both)
        world.client.drop(RUNTIME_POLICIES, "p", "jail")
        await settle()
        assert marks(world, "jail") == ("true", "ClusterRuntimePolicy all")
        world.client.drop(CLUSTER_RUNTIME_POLICIES, "all")
        await settle()
        assert marks(world, "jail") == (None, None)


async def test_a_policy_of_the_cluster_labels_the_namespaces_that_it_selects(world: World) -> None:
    put_namespace(world, "a", team="agents")
    put_namespace(world, "b")
    put_cluster_policy(world, namespaceSelector={"matchLabels": {"team": "agents"}}, **_FLOOR)
    async with reconciling(world):
        assert (marks(world, "a")[0], marks(world, "b")[0]) == ("true", None)
        put_namespace(world, "c", team="agents")
        await settle()
        assert marks(world, "c")[0] == "true"


@pytest.mark.parametrize("value", ["true", "false"])
async def test_a_users_own_label_stays(world: World, value: str) -> None:
    world.client.put(NAMESPACES, {"metadata": {"name": "jail", "labels": {ENFORCE_LABEL: value}}})
    put_policy(world, "jail", **_FLOOR)
    async with reconciling(world):
        assert marks(world, "jail") == (value, None)
        world.client.drop(RUNTIME_POLICIES, "p", "jail")
        await settle()
        assert marks(world, "jail") == (value, None)


async def test_a_label_that_was_removed_is_written_again(world: World) -> None:
    put_namespace(world, "jail")
    put_policy(world, "jail", **_FLOOR)
    async with reconciling(world):
        put_namespace(world, "jail")
        await settle()
        assert marks(world, "jail")[0] == "true"


async def test_a_namespace_that_changes_meanwhile_is_looked_at_again(world: World) -> None:
    put_namespace(world, "jail")
    put_policy(world, "jail", **_FLOOR)
    conflict = ConflictError.of("namespaces", "jail", "it has changed")
    world.client.failures.append(("patch", "namespaces", conflict))
    async with reconciling(world):
        assert marks(world, "jail")[0] is None
        put_namespace(world, "jail", changed="yes")
        await settle()
        assert marks(world, "jail")[0] == "true"
