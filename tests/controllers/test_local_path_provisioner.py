"""The provisioner alone: what it does for claims and volumes that another controller binds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.controllers.objects import NODES, PODS
from moorage.controllers.persistentvolumes import LocalPathProvisioner
from moorage.wire.client.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from tests.api.claims.objects import HOSTNAME, claim_json, class_json, volume_json
from tests.controllers.memory import MemoryClient, World

OURS = "runtime.moorage.dev/local-path"
NAMED = "volume.kubernetes.io/storage-provisioner"
SELECTED = "volume.kubernetes.io/selected-node"
NODE = {"metadata": {"name": "n1", "labels": {HOSTNAME: "host1"}}}
LATE = class_json("local-path", provisioner=OURS, is_late=True)
FINALIZER = "runtime.moorage.dev/local-volume"


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def provisioning(world: World, *objects: tuple[Any, Any]) -> AsyncIterator[MemoryClient]:
    for resource, obj in ((NODES, NODE), (STORAGE_CLASSES, LATE), *objects):
        world.client.put(resource, obj)
    provisioner = LocalPathProvisioner(world.client, world.informers, world.recorder, world.clock)
    async with world.running(provisioner.run()) as client:
        await world.settled(1)
        yield client


def claim(**more: Any) -> tuple[Any, Any]:
    annotations = more.pop("annotations", {NAMED: OURS, SELECTED: "n1"})
    made = claim_json(storage_class="local-path", annotations=annotations, **more)
    return PERSISTENT_VOLUME_CLAIMS, made


async def test_a_claim_that_waits_for_it_gets_a_volume_and_is_not_bound(world: World) -> None:
    async with provisioning(world, claim()) as client:
        (volume,) = client.all(PERSISTENT_VOLUMES)
        assert volume["metadata"]["name"] == "pvc-uid-data"
        assert volume["spec"]["claimRef"]["uid"] == "uid-data"
        assert "volumeName" not in client.all(PERSISTENT_VOLUME_CLAIMS)[0]["spec"]
        assert [reason for _, _, reason, _ in client.events] == ["ProvisioningSucceeded"]


@pytest.mark.parametrize(
    "waiting",
    [
        claim(annotations={SELECTED: "n1"}),
        claim(annotations={NAMED: "example.com/disks", SELECTED: "n1"}),
        claim(annotations={NAMED: OURS}),
        claim(volume="pv"),
        (PERSISTENT_VOLUME_CLAIMS, claim_json(storage_class="gone", annotations={NAMED: OURS})),
    ],
)
async def test_other_claims_are_left_alone(world: World, waiting: tuple[Any, Any]) -> None:
    async with provisioning(world, waiting) as client:
        assert not client.events
        assert client.find(PERSISTENT_VOLUMES, "pvc-uid-data") is None


async def test_a_claim_loses_a_node_that_is_gone(world: World) -> None:
    async with provisioning(world, claim(annotations={NAMED: OURS, SELECTED: "n9"})) as client:
        annotations = client.all(PERSISTENT_VOLUME_CLAIMS)[0]["metadata"]["annotations"]
        assert SELECTED not in annotations
        assert client.events[0][2] == "ProvisioningFailed"


def released(**more: Any) -> tuple[Any, Any]:
    owner = claim_json()
    return PERSISTENT_VOLUMES, volume_json(
        claim=owner, policy="Delete", annotations={"pv.kubernetes.io/provisioned-by": OURS},
        **{"phase": "Released", **more},
    )  # fmt: skip


async def test_a_released_volume_is_deleted_once_no_pod_uses_it(world: World) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    meta = {"name": "p", "namespace": "default"}
    pod = {"metadata": meta, "spec": {"nodeName": "n1", "volumes": [volume]},
           "status": {"phase": "Running"}}  # fmt: skip
    async with provisioning(world, released(), (PODS, pod)) as client:
        assert client.find(PERSISTENT_VOLUMES, "pv") is not None
        client.put(PODS, {**pod, "status": {"phase": "Succeeded"}})
        await world.settled(1)
        assert client.find(PERSISTENT_VOLUMES, "pv") is None


@pytest.mark.parametrize("phase", ["Bound", "Available", "Failed"])
async def test_a_volume_that_is_not_released_stays(world: World, phase: str) -> None:
    async with provisioning(world, released(phase=phase), claim(volume="pv")) as client:
        volume = client.find(PERSISTENT_VOLUMES, "pv")
        assert (volume is None) == (phase == "Failed")
