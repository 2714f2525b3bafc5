"""Finalizers of claims, volumes and classes of attributes: when they come and go."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import NotFoundError
from moorage.controllers.objects import ATTRIBUTES_CLASSES, PODS
from moorage.controllers.storage_protection import (
    attributes_class_protection,
    claim_protection,
    volume_protection,
)
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.api.claims.objects import claim_json, volume_json
from tests.controllers.memory import MemoryClient, World

DELETED = "2026-01-01T00:00:00Z"
OF_CLAIMS, OF_VOLUMES = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
OF_CLASSES = "kubernetes.io/vac-protection"
OTHER = "example.com/other"


def deleted(obj: Any, *finalizers: str) -> Any:
    obj["metadata"] |= {"deletionTimestamp": DELETED, "finalizers": list(finalizers)}
    return obj


def pod(
    name: str = "p",
    *,
    claim: str = "data",
    node: str = "n",
    is_ephemeral: bool = False,
    meta: dict[str, Any] | None = None,
    **status: Any,
) -> Any:
    source: Any = {"persistentVolumeClaim": {"claimName": claim}}
    if is_ephemeral:
        source = {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **(meta or {})},
        "spec": {"nodeName": node, "volumes": [{"name": "data", **source}]},
        "status": status,
    }


def finalizers(client: MemoryClient, resource: Any, name: str) -> list[str] | None:
    obj = client.find(resource, name)
    return None if obj is None else obj["metadata"].get("finalizers", [])


def protection_of_claims(world: World) -> Any:
    return claim_protection(world.client, world.informers, world.clock).run()


async def test_a_claim_stays_until_its_last_pod_on_a_node_is_gone() -> None:
    world = World()
    world.client.put(PERSISTENT_VOLUME_CLAIMS, deleted(claim_json(), OF_CLAIMS))
    world.client.put(PODS, pod("a"))
    world.client.put(PODS, pod("b", phase="Succeeded"))
    async with world.running(protection_of_claims(world)) as client:
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "data") == [OF_CLAIMS]
        client.drop(PODS, "a")
        await world.settled()
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "data") == [OF_CLAIMS]
        client.drop(PODS, "b")
        await world.settled()
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "data") is None
        (patch,) = client.asked("patch")
        assert patch.body["metadata"]["uid"] == "uid-data"


@pytest.mark.parametrize(
    "other",
    [
        pod(node=""),
        pod(claim="other"),
        pod("x", is_ephemeral=True),
        # Its own ephemeral claim, but the pod is only waited for by the garbage collector.
        pod("x", is_ephemeral=True,
            meta={"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 0}),
    ],
)  # fmt: skip
async def test_pods_that_do_not_count(other: Any) -> None:
    world = World()
    name = "x-data" if "ephemeral" in other["spec"]["volumes"][0] else "data"
    owners = [{"uid": "uid-x" if "deletionTimestamp" in other["metadata"] else "uid-of-another",
               "kind": "Pod", "name": "x", "apiVersion": "v1", "controller": True}]  # fmt: skip
    world.client.put(PODS, other)
    world.client.put(
        PERSISTENT_VOLUME_CLAIMS, deleted(claim_json(name, owners=owners), OF_CLAIMS, OTHER)
    )
    async with world.running(protection_of_claims(world)) as client:
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, name) == [OTHER]


async def test_a_pod_keeps_the_claim_of_its_ephemeral_volume() -> None:
    world = World()
    owners = [{"uid": "uid-x", "kind": "Pod", "name": "x", "apiVersion": "v1", "controller": True}]
    world.client.put(PODS, pod("x", is_ephemeral=True))
    world.client.put(
        PERSISTENT_VOLUME_CLAIMS, deleted(claim_json("x-data", owners=owners), OF_CLAIMS)
    )
    async with world.running(protection_of_claims(world)) as client:
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "x-data") == [OF_CLAIMS]
        client.drop(PODS, "x")
        await world.settled()
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "x-data") is None


async def test_a_pod_that_the_copy_lacks_keeps_its_claim() -> None:
    world = World()
    async with world.running(protection_of_claims(world)) as client:
        client.shows = lambda resource, _: resource is not PODS
        client.put(PODS, pod())
        client.put(PERSISTENT_VOLUME_CLAIMS, deleted(claim_json(), OF_CLAIMS))
        await world.settled()
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "data") == [OF_CLAIMS]
        assert client.asked("list", PODS)[-1].key.startswith("default")


async def test_a_pod_of_the_same_name_releases_what_the_earlier_one_used() -> None:
    world = World()
    world.client.put(PODS, pod())
    world.client.put(PERSISTENT_VOLUME_CLAIMS, deleted(claim_json(), OF_CLAIMS))
    async with world.running(protection_of_claims(world)) as client:
        client.put(PODS, pod(claim="other", meta={"uid": "uid-of-another"}))
        await world.settled()
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "data") is None


async def test_claims_from_before_the_admission_plugin_get_the_finalizer() -> None:
    world = World()
    world.client.put(PERSISTENT_VOLUME_CLAIMS, claim_json())
    async with world.running(protection_of_claims(world)) as client:
        assert finalizers(client, PERSISTENT_VOLUME_CLAIMS, "data") == [OF_CLAIMS]
        assert len(client.writes) == 1


async def test_a_claim_that_went_meanwhile_is_no_failure() -> None:
    world = World()
    async with world.running(protection_of_claims(world)) as client:
        error = NotFoundError.of("persistentvolumeclaims", "data")
        client.failures.append(("patch", PERSISTENT_VOLUME_CLAIMS.plural, error))
        client.put(PERSISTENT_VOLUME_CLAIMS, deleted(claim_json(), OF_CLAIMS))
        await world.settled(10)
        assert len(client.asked("patch")) == 1


async def test_a_volume_stays_while_it_is_bound() -> None:
    world = World()
    world.client.put(PERSISTENT_VOLUMES, deleted(volume_json(phase="Bound"), OF_VOLUMES))
    world.client.put(PERSISTENT_VOLUMES, volume_json("old"))
    controller = volume_protection(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        assert finalizers(client, PERSISTENT_VOLUMES, "pv") == [OF_VOLUMES]
        assert finalizers(client, PERSISTENT_VOLUMES, "old") == [OF_VOLUMES]
        client.put(PERSISTENT_VOLUMES, deleted(volume_json(phase="Released"), OF_VOLUMES))
        await world.settled()
        assert finalizers(client, PERSISTENT_VOLUMES, "pv") is None


async def test_a_class_of_attributes_stays_while_claims_or_volumes_name_it() -> None:
    world = World()
    uses_it: list[tuple[Any, Any]] = [
        (PERSISTENT_VOLUME_CLAIMS, claim_json("a", volumeAttributesClassName="gold")),
        (PERSISTENT_VOLUME_CLAIMS,
         claim_json("b", status={"currentVolumeAttributesClassName": "gold"})),
        (PERSISTENT_VOLUME_CLAIMS,
         claim_json("c", status={"modifyVolumeStatus": {"targetVolumeAttributesClassName":
                                                        "gold"}})),
        (PERSISTENT_VOLUMES, volume_json("v", volumeAttributesClassName="gold")),
    ]  # fmt: skip
    for resource, obj in uses_it:
        world.client.put(resource, obj)
    world.client.put(ATTRIBUTES_CLASSES, deleted({"metadata": {"name": "gold"}}, OF_CLASSES))
    world.client.put(ATTRIBUTES_CLASSES, {"metadata": {"name": "old"}})
    controller = attributes_class_protection(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        assert finalizers(client, ATTRIBUTES_CLASSES, "old") == [OF_CLASSES]
        for resource, obj in uses_it:
            assert finalizers(client, ATTRIBUTES_CLASSES, "gold") == [OF_CLASSES]
            client.drop(resource, obj["metadata"]["name"])
            await world.settled()
        assert finalizers(client, ATTRIBUTES_CLASSES, "gold") is None
