"""The ResourceQuota loop: what is used is counted again when objects go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import NotFoundError
from moorage.controllers.resourcequotas import ResourceQuotaController, counted_resources
from moorage.wire.client.resources import CONFIG_MAPS, PODS, RESOURCE_QUOTAS, SECRETS, SERVICES
from tests.controllers.memory import MemoryClient, World

LIST = ["get", "list", "watch"]


@pytest.fixture
def world() -> World:
    world = World()
    core = [
        {"name": resource.plural, "kind": resource.kind, "namespaced": True, "verbs": LIST}
        for resource in (PODS, SERVICES, SECRETS, CONFIG_MAPS, RESOURCE_QUOTAS)
    ]
    world.client.answers |= {
        ("GET", "/api"): json.dumps({"versions": ["v1"]}).encode(),
        ("GET", "/api/v1"): json.dumps({"resources": core}).encode(),
        ("GET", "/apis"): json.dumps({"groups": []}).encode(),
    }
    return world


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[ResourceQuotaController]:
    controller = ResourceQuotaController(world.client, world.informers, world.clock)
    async with world.running(controller.run(workers=2)):
        yield controller


def quota(hard: dict[str, str], name: str = "q", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"hard": hard, **spec},
    }


def pod(name: str, cpu: str = "1", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": phase},
    }


def status(client: MemoryClient, name: str = "q") -> Any:
    wire = client.find(RESOURCE_QUOTAS, name)
    assert wire is not None
    return wire.get("status", {})


async def test_a_new_quota_gets_its_limits_and_what_is_used(world: World) -> None:
    hard = {"pods": "5", "cpu": "4", "secrets": "3", "services": "2", "count/configmaps": "1"}
    world.client.put(RESOURCE_QUOTAS, quota(hard))
    world.client.put(PODS, pod("a"))
    world.client.put(PODS, pod("b", "500m"))
    world.client.put(PODS, pod("over", phase="Succeeded"))
    world.client.put(SECRETS, {"metadata": {"name": "s"}})
    other = {"metadata": {"name": "t", "namespace": "other"}}
    world.client.put(SECRETS, other)
    async with reconciling(world):
        assert status(world.client) == {
            "hard": hard,
            "used": {"pods": "2", "cpu": "1500m", "secrets": "1", "services": "0",
                     "count/configmaps": "0"},
        }  # fmt: skip


async def test_scopes(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"pods": "5"}, scopes=["Terminating"]))
    world.client.put(PODS, pod("a"))
    world.client.put(PODS, pod("b", activeDeadlineSeconds=5))
    async with reconciling(world):
        assert status(world.client)["used"] == {"pods": "1"}


async def test_a_changed_limit_is_taken_over_at_once(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"pods": "5", "secrets": "1"}))
    async with reconciling(world):
        wire = world.client.find(RESOURCE_QUOTAS, "q")
        wire["spec"]["hard"] = {"pods": "7"}
        world.client.put(RESOURCE_QUOTAS, wire)
        await world.settled()
        assert status(world.client) == {"hard": {"pods": "7"}, "used": {"pods": "0"}}


async def test_pods_that_end_are_counted_no_more(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"cpu": "5"}))
    world.client.put(RESOURCE_QUOTAS, quota({"secrets": "5"}, "other"))
    for name in ("a", "b"):
        world.client.put(PODS, pod(name))
    async with reconciling(world):
        assert status(world.client)["used"] == {"cpu": "2"}
        world.client.requests.clear()
        world.client.put(PODS, pod("a", phase="Failed"))
        world.client.put(PODS, pod("b", phase="Succeeded"))
        await world.settled(0.5)
        assert status(world.client)["used"] == {"cpu": "0"}
        # Both at once, and only for the quota that they concern.
        assert [request.plural for request in world.client.asked("list")] == ["pods"]


async def test_objects_that_go_are_counted_no_more(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"secrets": "5"}))
    world.client.put(SECRETS, {"metadata": {"name": "s"}})
    async with reconciling(world) as controller:
        assert status(world.client)["used"] == {"secrets": "1"}
        world.client.drop(SECRETS, "s")
        controller.object_removed(CONFIG_MAPS, "default")
        controller.object_removed(SECRETS, "other")
        await world.settled(1)
        assert status(world.client)["used"] == {"secrets": "1"}
        controller.object_removed(SECRETS, "default")
        await world.settled(0.5)
        assert status(world.client)["used"] == {"secrets": "0"}


async def test_what_admission_counted_too_much_is_corrected(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"pods": "5"}))
    async with reconciling(world):
        wire = world.client.find(RESOURCE_QUOTAS, "q")
        wire["status"] = {"hard": {"pods": "5"}, "used": {"pods": "3"}}
        world.client.put(RESOURCE_QUOTAS, wire)
        await world.settled(29)
        assert status(world.client)["used"] == {"pods": "3"}
        await world.settled(1)
        assert status(world.client)["used"] == {"pods": "0"}


async def test_all_is_counted_again_every_five_minutes(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"secrets": "5"}))
    async with reconciling(world):
        await world.settled(31)
        world.client.put(SECRETS, {"metadata": {"name": "s"}})
        await world.settled(268)
        assert status(world.client)["used"] == {"secrets": "0"}
        await world.settled(1)
        assert status(world.client)["used"] == {"secrets": "1"}


async def test_resources_that_are_not_served_count_as_none(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"count/widgets.x.io": "5", "pods": "1"}))
    async with reconciling(world):
        assert status(world.client)["used"] == {"count/widgets.x.io": "0", "pods": "0"}


async def test_a_collection_that_is_gone_counts_as_none(world: World) -> None:
    world.client.put(RESOURCE_QUOTAS, quota({"secrets": "1"}))
    world.client.put(SECRETS, {"metadata": {"name": "s"}})
    world.client.failures.append(("list", "secrets", NotFoundError("gone")))
    world.client.failures.append(("list", "secrets", NotFoundError("gone")))
    async with reconciling(world):
        assert status(world.client)["used"] in ({"secrets": "0"}, {"secrets": "1"})
        await world.settled(300)
        assert status(world.client)["used"] == {"secrets": "1"}


def test_the_resources_that_quotas_are_about() -> None:
    names = [
        "requests.cpu", "count/pods", "services.nodeports", "count/deployments.apps", "secrets",
        "count/secrets", "x.storageclass.storage.k8s.io/requests.storage",
    ]  # fmt: skip
    assert counted_resources(names) == [
        "pods", "services", "persistentvolumeclaims", "deployments.apps", "secrets"
    ]  # fmt: skip
    assert counted_resources(["limits.cpu"]) == ["pods"]
