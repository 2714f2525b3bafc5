"""The PersistentVolume loop: binding, provisioning, reclaiming, with their events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ConflictError
from moorage.controllers.objects import NODES, PODS
from moorage.controllers.persistentvolumes import PersistentVolumeController
from moorage.wire.client.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from tests.api.claims.objects import HOSTNAME, claim_json, class_json, volume_json
from tests.controllers.memory import MemoryClient, World

UID = "6a1f0b7e-9f0a-4c52-8a55-0e3f9a2b1c77"
OURS = "runtime.moorage.dev/local-path"
DONE, BY_US = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
SELECTED = "volume.kubernetes.io/selected-node"
NODE = {"metadata": {"name": "n1", "labels": {HOSTNAME: "host1"}}}


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World, *objects: tuple[Any, Any]) -> AsyncIterator[MemoryClient]:
    for resource, obj in objects:
        world.client.put(resource, obj)
    controller = PersistentVolumeController(
        world.client, world.informers, world.recorder, world.clock
    )
    async with world.running(controller.run()) as client:
        await world.settled(1)
        yield client


def a(claim: Any) -> tuple[Any, Any]:
    return PERSISTENT_VOLUME_CLAIMS, claim


def v(volume: Any) -> tuple[Any, Any]:
    return PERSISTENT_VOLUMES, volume


def c(storage_class: Any) -> tuple[Any, Any]:
    return STORAGE_CLASSES, storage_class


def pod(name: str, claim: str, *, node: str = "", phase: str = "Pending") -> tuple[Any, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    meta = {"name": name, "namespace": "default"}
    spec = {"nodeName": node, "volumes": [{"name": "other"}, volume]}
    return PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def claim_of(client: MemoryClient, name: str = "data") -> Any:
    return client.find(PERSISTENT_VOLUME_CLAIMS, name)


def volume_of(client: MemoryClient, name: str = "pv") -> Any:
    return client.find(PERSISTENT_VOLUMES, name)


def said(client: MemoryClient, about: str) -> list[tuple[str, str]]:
    return [(reason, message) for name, _, reason, message in client.events if name == about]


def assert_bound(client: MemoryClient, claim: str = "data", volume: str = "pv") -> None:
    of_claim, of_volume = claim_of(client, claim), volume_of(client, volume)
    assert of_claim["status"]["phase"] == "Bound", of_claim
    assert of_claim["spec"]["volumeName"] == volume
    assert of_claim["metadata"]["annotations"][DONE] == "yes"
    assert of_volume["status"]["phase"] == "Bound"
    assert of_volume["spec"]["claimRef"]["uid"] == of_claim["metadata"]["uid"]


async def test_a_claim_and_a_volume_are_bound_to_each_other(world: World) -> None:
    volume = volume_json(size="3Gi", modes=("ReadWriteOnce", "ReadOnlyMany"), phase="")
    async with reconciling(world, v(volume), a(claim_json(size="2Gi"))) as client:
        assert_bound(client)
        claim, volume = claim_of(client), volume_of(client)
        assert claim["metadata"]["annotations"][BY_US] == "yes"
        assert claim["status"]["capacity"] == {"storage": "3Gi"}
        assert list(claim["status"]["accessModes"]) == ["ReadWriteOnce", "ReadOnlyMany"]
        assert volume["metadata"]["annotations"][BY_US] == "yes"
        assert volume["spec"]["claimRef"] | {"resourceVersion": ""} == {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default",
            "name": "data", "uid": "uid-data", "resourceVersion": "",
        }  # fmt: skip
        assert volume["status"]["lastPhaseTransitionTime"]


async def test_a_volume_that_comes_later_is_bound_too(world: World) -> None:
    async with reconciling(world, a(claim_json())) as client:
        assert claim_of(client)["status"]["phase"] == "Pending"
        assert said(client, "data")[0] == (
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        )
        client.put(PERSISTENT_VOLUMES, volume_json(phase=""))
        await world.settled(1)
        assert_bound(client)


async def test_two_claims_never_get_one_volume(world: World) -> None:
    claims = [a(claim_json(f"c{index}")) for index in range(4)]
    volumes = [v(volume_json(f"v{index}")) for index in range(3)]
    async with reconciling(world, *volumes, *claims) as client:
        bound = [claim_of(client, f"c{index}")["spec"].get("volumeName") for index in range(4)]
        assert sorted(name for name in bound if name) == ["v0", "v1", "v2"]


async def test_a_volume_reserved_by_its_user_is_for_that_claim(world: World) -> None:
    claim = claim_json()
    reserved = volume_json("reserved", size="9Gi", claim=claim, by_name_only=True, phase="")
    async with reconciling(world, v(volume_json("small")), v(reserved), a(claim)) as client:
        assert_bound(client, volume="reserved")
        assert BY_US not in volume_of(client, "reserved")["metadata"]["annotations"]
        assert volume_of(client, "small")["status"]["phase"] == "Available"


async def test_a_claim_that_names_its_volume_gets_it(world: World) -> None:
    async with reconciling(world, v(volume_json()), a(claim_json(volume="pv"))) as client:
        assert_bound(client)
        assert BY_US not in claim_of(client)["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("claim", "volume", "reason", "message"),
    [
        ({"size": "2Gi"}, {}, "VolumeMismatch",
         'Cannot bind to requested volume "pv": requested PV is too small'),
        ({"storage_class": "x"}, {}, "VolumeMismatch",
         'Cannot bind to requested volume "pv": storageClassName does not match'),
        ({}, {"claim": claim_json("other")}, "FailedBinding",
         'volume "pv" already bound to a different claim.'),
    ],
)  # fmt: skip
async def test_a_named_volume_that_does_not_do(
    world: World, claim: Any, volume: Any, reason: str, message: str
) -> None:
    objects = v(volume_json(**volume)), a(claim_json(volume="pv", **claim))
    async with reconciling(world, *objects, a(claim_json("other"))) as client:
        assert claim_of(client)["status"]["phase"] == "Pending"
        assert said(client, "data")[0] == (reason, message)


async def test_the_modes_of_a_claim_and_its_reserved_volume_must_agree(world: World) -> None:
    claim = claim_json()
    volume = volume_json(claim=claim, volumeMode="Block", phase="")
    async with reconciling(world, v(volume), a(claim)) as client:
        message = (
            'Cannot bind PersistentVolume "pv" to requested PersistentVolumeClaim due to '
            "incompatible volumeMode."
        )
        assert ("VolumeMismatch", message) in said(client, "data")
        assert said(client, "pv")[0] == (
            "VolumeMismatch",
            'Cannot bind PersistentVolume to requested PersistentVolumeClaim "data" due to '
            "incompatible volumeMode.",
        )


async def test_a_bound_claim_that_loses_its_volume_is_lost(world: World) -> None:
    claim = claim_json(volume="pv", annotations={DONE: "yes"}, phase="Bound",
                       status={"capacity": {"storage": "1Gi"}})  # fmt: skip
    async with reconciling(world, v(volume_json(claim=claim, phase="Bound")), a(claim)) as client:
        client.drop(PERSISTENT_VOLUMES, "pv")
        await world.settled(1)
        assert claim_of(client)["status"] == {"phase": "Lost"}
        message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        assert said(client, "data") == [("ClaimLost", message)]


async def test_a_lost_claim_whose_volume_comes_back_is_bound_again(world: World) -> None:
    claim = claim_json(volume="pv", annotations={DONE: "yes"}, phase="Lost")
    async with reconciling(world, a(claim)) as client:
        client.put(PERSISTENT_VOLUMES, volume_json(claim=claim, phase=""))
        await world.settled(1)
        assert_bound(client)


async def test_a_claim_bound_to_anothers_volume_is_lost(world: World) -> None:
    claim = claim_json(volume="pv", annotations={DONE: "yes"}, phase="Bound")
    other = claim_json("other", volume="pv", annotations={DONE: "yes"}, phase="Bound")
    volume = volume_json(claim=other, phase="Bound")
    async with reconciling(world, v(volume), a(other), a(claim)) as client:
        assert claim_of(client)["status"]["phase"] == "Lost"
        assert said(client, "data")[0][0] == "ClaimMisbound"
        assert_bound(client, "other")


async def test_a_volume_given_to_a_claim_that_has_another_is_freed(world: World) -> None:
    claim = claim_json(volume="first", annotations={DONE: "yes"}, phase="Bound")
    first = volume_json("first", claim=claim, phase="Bound")
    second = volume_json("second", claim=claim, phase="Bound", annotations={BY_US: "yes"})
    async with reconciling(world, v(first), v(second), a(claim)) as client:
        second = volume_of(client, "second")
        assert "claimRef" not in second["spec"]
        assert BY_US not in second["metadata"]["annotations"]
        assert second["status"]["phase"] == "Available"


async def test_a_binding_that_was_cut_short_is_completed(world: World) -> None:
    claim = claim_json()
    volume = volume_json(claim=claim, annotations={BY_US: "yes"}, phase="Available")
    async with reconciling(world, v(volume), v(volume_json("smaller")), a(claim)) as client:
        assert_bound(client)


async def test_a_conflict_is_decided_again(world: World) -> None:
    world.client.failures.append(("patch", "persistentvolumeclaims", ConflictError("changed")))
    async with reconciling(world, v(volume_json()), a(claim_json())) as client:
        await world.settled(1)
        assert_bound(client)


# classes


async def test_a_claim_without_class_gets_the_default(world: World) -> None:
    claim = claim_json(storage_class=None)
    async with reconciling(world, c(class_json("std", is_default=True)), a(claim)) as client:
        assert claim_of(client)["spec"]["storageClassName"] == "std"


async def test_a_default_class_that_comes_later_is_given_to_waiting_claims(world: World) -> None:
    async with reconciling(world, a(claim_json(storage_class=None))) as client:
        client.put(STORAGE_CLASSES, class_json("std", is_default=True))
        await world.settled(1)
        assert claim_of(client)["spec"]["storageClassName"] == "std"


async def test_an_empty_class_stays_empty(world: World) -> None:
    async with reconciling(world, c(class_json("std", is_default=True)), a(claim_json())) as client:
        assert claim_of(client)["spec"]["storageClassName"] == ""


async def test_late_binding_waits_for_a_pod(world: World) -> None:
    late = c(class_json("late", is_late=True))
    volume = volume_json(storage_class="late")
    async with reconciling(world, late, v(volume), a(claim_json(storage_class="late"))) as client:
        assert claim_of(client)["status"]["phase"] == "Pending"
        message = "waiting for first consumer to be created before binding"
        assert said(client, "data")[-1] == ("WaitForFirstConsumer", message)
        client.put(*pod("web", "data"))
        client.put(*pod("ended", "data", phase="Failed"))
        await world.settled(16)
        await world.settled(1)
        message = "waiting for pod web to be scheduled"
        assert ("WaitForPodScheduled", message) in said(client, "data")
        assert client.names(PERSISTENT_VOLUMES) == ["pv"]


async def test_an_external_provisioner_is_named_and_waited_for(world: World) -> None:
    claim = claim_json(storage_class="fast")
    async with reconciling(world, c(class_json()), a(claim)) as client:
        annotations = claim_of(client)["metadata"]["annotations"]
        assert annotations == {
            "volume.beta.kubernetes.io/storage-provisioner": "example.com/disks",
            "volume.kubernetes.io/storage-provisioner": "example.com/disks",
        }
        assert said(client, "data")[0] == (
            "ExternalProvisioning",
            "Waiting for a volume to be created either by the external provisioner "
            "'example.com/disks' or manually by the system administrator. If volume creation is "
            "delayed, please verify that the provisioner is running and correctly registered.",
        )
        made = volume_json(storage_class="fast", claim=claim_of(client), phase="")
        client.put(PERSISTENT_VOLUMES, made)
        await world.settled(1)
        assert_bound(client)


@pytest.mark.parametrize(
    ("storage_class", "message"),
    [
        (None, 'storageclass.storage.k8s.io "fast" not found'),
        (class_json(provisioner="kubernetes.io/no-provisioner"),
         "no volume plugin matched name: kubernetes.io/no-provisioner"),
    ],
)  # fmt: skip
async def test_what_cannot_be_provisioned_is_said(
    world: World, storage_class: Any, message: str
) -> None:
    objects = [c(storage_class)] if storage_class else []
    async with reconciling(world, *objects, a(claim_json(storage_class="fast"))) as client:
        assert said(client, "data")[0] == ("ProvisioningFailed", message)
        assert claim_of(client)["status"]["phase"] == "Pending"


# our own volumes


LOCAL = class_json("local-path", provisioner=OURS, is_late=True)


def selected(**more: Any) -> Any:
    more = {"storage_class": "local-path", "annotations": {SELECTED: "n1"}, **more}
    return claim_json(uid=UID, **more)


async def test_a_volume_is_made_on_the_selected_node(world: World) -> None:
    async with reconciling(world, c(LOCAL), (NODES, NODE), a(selected(size="2Gi"))) as client:
        assert_bound(client, volume=f"pvc-{UID}")
        volume = volume_of(client, f"pvc-{UID}")
        assert volume["metadata"]["labels"] == {"runtime.moorage.dev/node": "n1"}
        assert volume["metadata"]["annotations"] == {
            "pv.kubernetes.io/provisioned-by": OURS, BY_US: "yes",
        }  # fmt: skip
        assert volume["metadata"]["finalizers"] == ["runtime.moorage.dev/local-path"]
        spec = volume["spec"]
        assert spec["csi"] == {"driver": "local-path.runtime.moorage.dev", "volumeHandle": UID}
        assert spec["capacity"] == {"storage": "2Gi"}
        assert spec["persistentVolumeReclaimPolicy"] == "Delete"
        assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
            {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["host1"]}]}
        ]
        assert said(client, "data") == [(
            "ProvisioningSucceeded",
            f"Successfully provisioned volume pvc-{UID} using {OURS}",
        )]  # fmt: skip


async def test_nothing_is_made_before_a_node_is_selected(world: World) -> None:
    claim = selected(annotations={})
    async with reconciling(world, c(LOCAL), (NODES, NODE), a(claim)) as client:
        assert client.names(PERSISTENT_VOLUMES) == []


async def test_the_scheduler_chooses_again_when_the_node_is_gone(world: World) -> None:
    async with reconciling(world, c(LOCAL), a(selected())) as client:
        assert SELECTED not in claim_of(client)["metadata"]["annotations"]
        assert said(client, "data")[0] == (
            "ProvisioningFailed",
            'Failed to provision volume with StorageClass "local-path": node "n1" not found',
        )


@pytest.mark.parametrize(
    ("claim", "storage_class", "why"),
    [
        ({"volumeMode": "Block"}, {}, f"{OURS} does not support block volume provisioning"),
        ({"modes": ("ReadWriteMany",)}, {}, "ReadWriteMany refused"),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}, {}, "with a datasource"),
        ({"selector": {}}, {}, "claim.Spec.Selector is not supported for dynamic provisioning"),
        ({}, {"mountOptions": ["ro"]}, "has mount options [ro]"),
        ({"annotations": {}}, {"is_late": False}, "need volumeBindingMode WaitForFirstConsumer"),
        ({}, {"allowedTopologies": [{"matchLabelExpressions": [
            {"key": HOSTNAME, "values": ["other"]}]}]}, "does not match the allowed topologies"),
    ],
)  # fmt: skip
async def test_what_our_volumes_do_not_have_is_refused(
    world: World, claim: Any, storage_class: Any, why: str
) -> None:
    own = class_json("local-path", **{"provisioner": OURS, "is_late": True, **storage_class})
    async with reconciling(world, c(own), (NODES, NODE), a(selected(**claim))) as client:
        assert client.names(PERSISTENT_VOLUMES) == []
        reason, message = said(client, "data")[0]
        assert reason == "ProvisioningFailed"
        assert why in message


# reclaiming


def ours(**more: Any) -> Any:
    return volume_json(
        claim=claim_json(), phase="Bound", policy="Delete",
        labels={"runtime.moorage.dev/node": "n1"},
        annotations={"pv.kubernetes.io/provisioned-by": OURS},
        finalizers=("runtime.moorage.dev/local-path",), **more,
    )  # fmt: skip


async def test_a_volume_whose_claim_is_gone_is_kept_under_retain(world: World) -> None:
    volume = volume_json(claim=claim_json(), phase="Bound")
    async with reconciling(world, v(volume)) as client:
        assert volume_of(client)["status"]["phase"] == "Released"
        assert not client.asked("delete")


async def test_a_released_volume_is_not_given_to_a_new_claim_of_the_name(world: World) -> None:
    volume = volume_json(claim=claim_json(uid="earlier"), phase="Bound")
    async with reconciling(world, v(volume), a(claim_json())) as client:
        assert volume_of(client)["status"]["phase"] == "Released"
        assert claim_of(client)["status"]["phase"] == "Pending"


async def test_a_claim_that_is_not_in_our_copy_yet_is_asked_for(world: World) -> None:
    claim = claim_json()
    async with reconciling(world) as client:
        # Stored without an event: the copy does not have it.
        client.put_unseen(PERSISTENT_VOLUME_CLAIMS, claim)
        client.put(PERSISTENT_VOLUMES, volume_json(claim=claim, phase="Bound"))
        await world.settled(1)
        assert volume_of(client)["status"]["phase"] == "Bound"


async def test_our_volume_is_deleted_and_stays_until_its_node_has_removed_it(world: World) -> None:
    async with reconciling(world, v(ours()), (NODES, NODE)) as client:
        assert volume_of(client)["status"]["phase"] == "Released"
        assert volume_of(client)["metadata"]["deletionTimestamp"]
        assert volume_of(client)["metadata"]["finalizers"]


async def test_it_is_not_deleted_while_a_pod_uses_it(world: World) -> None:
    user = pod("web", "data", node="n1", phase="Running")
    async with reconciling(world, v(ours()), (NODES, NODE), user) as client:
        assert volume_of(client)["status"]["phase"] == "Released"
        assert not client.asked("delete")
        client.drop(PODS, "web")
        await world.settled(1)
        assert volume_of(client)["metadata"]["deletionTimestamp"]


async def test_it_goes_at_once_when_its_node_is_gone(world: World) -> None:
    async with reconciling(world, v(ours()), (NODES, NODE)) as client:
        client.drop(NODES, "n1", "")
        await world.settled(1)
        assert volume_of(client) is None


@pytest.mark.parametrize("labels", [{}, {"runtime.moorage.dev/node": "never"}])
async def test_a_volume_that_no_node_has_goes_when_it_is_deleted(
    world: World, labels: dict[str, str]
) -> None:
    """It was made by hand, never bound, with our finalizer."""
    volume = volume_json(labels=labels, finalizers=("runtime.moorage.dev/local-path",))
    async with reconciling(world, v(volume), (NODES, NODE)) as client:
        await client.delete(PERSISTENT_VOLUMES, "pv")
        await world.settled(1)
        assert volume_of(client) is None


async def test_a_bound_volume_that_is_deleted_by_hand_stays(world: World) -> None:
    claim = claim_json(volume="pv", annotations={DONE: "yes"}, phase="Bound")
    async with reconciling(world, v(ours()), a(claim), (NODES, NODE)) as client:
        await client.delete(PERSISTENT_VOLUMES, "pv")
        await world.settled(1)
        assert volume_of(client)["status"]["phase"] == "Bound"
        assert volume_of(client)["metadata"]["finalizers"]


@pytest.mark.parametrize(
    ("volume", "reason", "message"),
    [
        ({"policy": "Recycle"}, "VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        ({"policy": "Delete"}, "VolumeFailedDelete",
         'error getting deleter volume plugin for volume "pv": no deletable volume plugin matched; '
         "Moorage deletes no volumes of kind hostPath: delete its data and the object by hand"),
        ({"policy": "Shred"}, "VolumeUnknownReclaimPolicy",
         "Volume has unrecognized PersistentVolumeReclaimPolicy"),
    ],
)  # fmt: skip
async def test_a_policy_that_cannot_be_carried_out_fails_the_volume(
    world: World, volume: Any, reason: str, message: str
) -> None:
    async with reconciling(
        world, v(volume_json(claim=claim_json(), phase="Bound", **volume))
    ) as client:
        assert volume_of(client)["status"]["phase"] == "Failed"
        assert volume_of(client)["status"]["message"] == message
        assert said(client, "pv") == [(reason, message)]


async def test_volumes_of_other_provisioners_are_theirs_to_delete(world: World) -> None:
    annotations = {"pv.kubernetes.io/provisioned-by": "disks.example.com"}
    volume = volume_json(
        claim=claim_json(), phase="Bound", policy="Delete", annotations=annotations
    )
    async with reconciling(world, v(volume)) as client:
        assert volume_of(client)["status"]["phase"] == "Released"
        assert not client.asked("delete")
