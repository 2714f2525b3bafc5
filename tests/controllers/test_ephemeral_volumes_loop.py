"""Claims that pods bring along: how they are made, and what is in their way."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import ForbiddenError, StatusError
from moorage.controllers.ephemeral_volumes import EphemeralVolumeController
from moorage.controllers.objects import PODS
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS
from tests.api.claims.objects import claim_json
from tests.controllers.memory import MemoryClient, World

SPEC = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "volumeMode": "Filesystem",
}
LABELS, ANNOTATIONS = {"a": "b"}, {"example.com/c": "d"}
TEMPLATE = {"metadata": {"labels": LABELS, "annotations": ANNOTATIONS}, "spec": SPEC}
OWNER = {
    "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True,
    "blockOwnerDeletion": True,
}  # fmt: skip


def pod(**meta: Any) -> Any:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p", **meta},
        "spec": {
            "volumes": [
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": TEMPLATE}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            ]
        },
    }


def controller(world: World) -> Any:
    return EphemeralVolumeController(
        world.client, world.informers, world.recorder, world.clock
    ).run()


def claims(client: MemoryClient) -> list[str]:
    return client.names(PERSISTENT_VOLUME_CLAIMS)


async def test_a_claim_is_made_from_the_template_and_owned_by_the_pod() -> None:
    world = World()
    async with world.running(controller(world)) as client:
        client.put(PODS, pod())
        await world.settled()
        claim = client.find(PERSISTENT_VOLUME_CLAIMS, "p-scratch")
        assert claim is not None
        assert claims(client) == ["p-scratch"]
        assert claim["spec"] == SPEC
        meta = claim["metadata"]
        assert (meta["labels"], meta["annotations"]) == (LABELS, ANNOTATIONS)
        assert meta["ownerReferences"] == [OWNER]
        client.put(PODS, {**pod(), "status": {"phase": "Running"}})
        await world.settled()
        assert len(client.writes) == 1


async def test_a_claim_that_is_gone_is_made_again_while_its_pod_stays() -> None:
    world = World()
    world.client.put(PODS, pod())
    async with world.running(controller(world)) as client:
        client.drop(PERSISTENT_VOLUME_CLAIMS, "p-scratch")
        await world.settled()
        assert claims(client) == ["p-scratch"]
        client.put(PODS, pod(deletionTimestamp="2026-01-01T00:00:00Z"))
        client.drop(PERSISTENT_VOLUME_CLAIMS, "p-scratch")
        await world.settled()
        assert claims(client) == []


async def test_a_pod_that_is_being_deleted_gets_none() -> None:
    world = World()
    world.client.put(PODS, pod(deletionTimestamp="2026-01-01T00:00:00Z"))
    async with world.running(controller(world)) as client:
        assert client.writes == []


async def test_anothers_claim_in_the_way_is_reported_until_it_goes() -> None:
    world = World()
    world.client.put(PERSISTENT_VOLUME_CLAIMS, claim_json("p-scratch"))
    world.client.put(PODS, pod())
    async with world.running(controller(world)) as client:
        await world.settled(1)
        assert client.events == [
            ("p", "Warning", "FailedBinding", "ephemeral volume scratch: PVC default/p-scratch "
             "was not created for pod default/p (pod is not owner)")
        ]  # fmt: skip
        assert client.writes == []
        client.drop(PERSISTENT_VOLUME_CLAIMS, "p-scratch")
        await world.settled()
        claim = client.find(PERSISTENT_VOLUME_CLAIMS, "p-scratch")
        assert claim is not None
        assert claim["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.failing_reconciles
async def test_a_refusal_is_reported_and_tried_again() -> None:
    world = World()
    why = 'persistentvolumeclaims "p-scratch" is forbidden: exceeded quota: q'
    world.client.failures.append(("create", PERSISTENT_VOLUME_CLAIMS.plural, ForbiddenError(why)))
    world.client.put(PODS, pod())
    async with world.running(controller(world)) as client:
        await world.settled(1)
        assert [message for *_, message in client.events] == [
            f"ephemeral volume scratch: create PVC p-scratch: {why}"
        ]
        assert claims(client) == ["p-scratch"]


async def test_in_an_ending_namespace_nothing_is_made() -> None:
    world = World()
    ending = ForbiddenError("no", {"causes": [{"reason": "NamespaceTerminating"}]})
    error: StatusError = ending
    world.client.failures.append(("create", PERSISTENT_VOLUME_CLAIMS.plural, error))
    world.client.put(PODS, pod())
    async with world.running(controller(world)) as client:
        await world.settled(60)
        assert claims(client) == []
        assert client.events == []


async def test_a_pod_of_the_same_name_gets_no_claim_of_the_earlier_one() -> None:
    world = World()
    async with world.running(controller(world)) as client:
        client.send(PODS, "ADDED", _seen(pod()))
        client.put_unseen(PODS, _seen(pod(uid="uid-of-another")))
        await world.settled()
        assert client.writes == []


def _seen(obj: Any) -> Any:
    obj["metadata"]["resourceVersion"] = "9"
    return obj
