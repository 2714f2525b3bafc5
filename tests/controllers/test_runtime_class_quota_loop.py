"""The RuntimeClassQuota loop: what pods use is counted again when they end or go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ConflictError
from moorage.controllers.runtimes import RuntimeClassQuotaController
from moorage.wire.client.resources import PODS, RUNTIME_CLASS_QUOTAS
from tests.controllers.memory import World


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[None]:
    controller = RuntimeClassQuotaController(world.client, world.informers, world.clock)
    async with world.running(controller.run()):
        yield


def quota(hard: dict[str, Any], class_name: str = "gvisor", name: str = "q") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"className": class_name, "hard": hard},
    }


def pod(name: str, class_name: str = "gvisor", phase: str = "Running") -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"memory": "100Mi"}}}
    spec: dict[str, Any] = {"containers": [container], "overhead": {"memory": "32Mi"}}
    if class_name:
        spec["runtimeClassName"] = class_name
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def used(world: World, name: str = "q") -> Any:
    wire = world.client.find(RUNTIME_CLASS_QUOTAS, name)
    assert wire is not None
    return wire.get("status", {}).get("used")


async def test_a_new_quota_counts_the_pods_of_its_class_with_overhead(world: World) -> None:
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": 5, "requests.memory": "1Gi"}))
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": "5"}, "*", "all"))
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": "5"}, "legacy", "none"))
    for name, class_name in (("a", "gvisor"), ("b", "kata"), ("c", "")):
        world.client.put(PODS, pod(name, class_name))
    world.client.put(PODS, pod("over", phase="Succeeded"))
    async with reconciling(world):
        assert used(world) == {"pods": "1", "requests.memory": "132Mi"}
        assert used(world, "all") == {"pods": "3"}
        assert used(world, "none") == {"pods": "1"}
        wire = world.client.find(RUNTIME_CLASS_QUOTAS, "q")
        assert wire is not None
        assert wire["status"]["hard"] == {"pods": "5", "requests.memory": "1Gi"}


async def test_pods_that_end_or_go_are_counted_no_more(world: World) -> None:
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": "5"}))
    for name in ("a", "b", "c"):
        world.client.put(PODS, pod(name))
    async with reconciling(world):
        assert used(world) == {"pods": "3"}
        world.client.put(PODS, pod("a", phase="Failed"))
        world.client.drop(PODS, "b")
        await world.settled(0.5)
        await world.settled(0.2)
        assert used(world) == {"pods": "1"}


async def test_a_changed_quota_is_counted_at_once(world: World) -> None:
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": "5"}))
    world.client.put(PODS, pod("a"))
    async with reconciling(world):
        wire = world.client.find(RUNTIME_CLASS_QUOTAS, "q")
        assert wire is not None
        wire["spec"]["className"] = "kata"
        world.client.put(RUNTIME_CLASS_QUOTAS, wire)
        await world.settled(0.2)
        assert used(world) == {"pods": "0"}


async def test_what_admission_counted_too_much_is_corrected(world: World) -> None:
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": "5"}))
    async with reconciling(world):
        wire = world.client.find(RUNTIME_CLASS_QUOTAS, "q")
        assert wire is not None
        wire["status"] = {"hard": {"pods": "5"}, "used": {"pods": "3"}}
        world.client.put(RUNTIME_CLASS_QUOTAS, wire)
        await world.settled(29)
        assert used(world) == {"pods": "3"}
        await world.settled(1)
        await world.settled(0.2)
        assert used(world) == {"pods": "0"}


async def test_a_quota_that_admission_charged_meanwhile_is_counted_again(world: World) -> None:
    world.client.put(RUNTIME_CLASS_QUOTAS, quota({"pods": "5"}))
    world.client.put(PODS, pod("a"))
    world.client.failures.append(("patch", "runtimeclassquotas", ConflictError("changed")))
    async with reconciling(world):
        await world.settled(0.5)
        assert used(world) == {"pods": "1"}
