"""The scheduler and volumes: what it writes before it binds a pod, and what wakes a waiting one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.api.claims.objects import a_claim, a_storage_class, a_volume
from tests.scheduler.fake_client import FakeClient
from tests.scheduler.objects import a_node
from tests.scheduler.test_loop import a_client, scheduling
from tests.scheduler.test_volume_checks import DONE, LATE, SELECTED, STATIC, bound, using

NAME = "default/data"


def claim_of(client: FakeClient) -> PersistentVolumeClaim:
    claim: PersistentVolumeClaim = client.find(PERSISTENT_VOLUME_CLAIMS, NAME)
    return claim


def volume_of(client: FakeClient) -> PersistentVolume:
    volume: PersistentVolume = client.find(PERSISTENT_VOLUMES, "pv")
    return volume


def complete(client: FakeClient, volume: str = "pv", **annotations: str) -> None:
    """What the volume controller does in the end."""
    claim = claim_of(client)
    meta = msgspec.structs.replace(
        claim.metadata, annotations={**claim.metadata.annotations, **DONE, **annotations}
    )
    spec = msgspec.structs.replace(claim.spec, volume_name=volume)
    status = msgspec.structs.replace(claim.status, phase="Bound")
    client.put(msgspec.structs.replace(claim, metadata=meta, spec=spec, status=status))


async def test_a_pod_is_bound_after_its_volume() -> None:
    volume, claim = a_volume(storage_class="late"), a_claim(storage_class="late")
    objects = a_node("n1"), STATIC, volume, claim, using("data")
    async with scheduling(a_client(*objects)) as client:
        await client.until(lambda: volume_of(client).spec.claim_ref is not None)
        reference = volume_of(client).spec.claim_ref
        assert reference is not None
        assert (reference.name, reference.uid) == ("data", "uid-data")
        assert volume_of(client).metadata.annotations == {
            "pv.kubernetes.io/bound-by-controller": "yes"
        }
        assert not client.pod("p").spec.node_name
        complete(client)
        assert await client.until_bound("p") == "n1"


async def test_a_provisioner_is_given_the_node_and_time() -> None:
    objects = a_node("n1"), LATE, a_claim(storage_class="late"), using("data")
    async with scheduling(a_client(*objects)) as client:
        await client.until(lambda: SELECTED in claim_of(client).metadata.annotations)
        assert claim_of(client).metadata.annotations == {SELECTED: "n1"}
        assert not client.pod("p").spec.node_name
        client.put(a_volume(storage_class="late"))
        complete(client)
        assert await client.until_bound("p") == "n1"


async def test_a_provisioner_that_gives_up_has_the_pod_scheduled_again() -> None:
    objects = a_node("n1"), LATE, a_claim(storage_class="late"), using("data")
    async with scheduling(a_client(*objects)) as client:
        await client.until(lambda: SELECTED in claim_of(client).metadata.annotations)
        client.put(a_node("n2"))
        client.put(a_claim(storage_class="late"))
        message = await client.until_event("p", "FailedScheduling")
        assert message == (
            'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC '
            '"data"'
        )
        await client.until(lambda: SELECTED in claim_of(client).metadata.annotations)


async def test_a_volume_that_another_took_meanwhile_is_not_taken() -> None:
    volume, claim = a_volume(storage_class="late"), a_claim(storage_class="late")
    client = a_client(a_node("n1"), STATIC, volume, claim)
    client.races.append(lambda: client.put(a_volume(storage_class="late", size="2Gi")))
    async with scheduling(client):
        client.put(using("data"))
        message = await client.until_event("p", "FailedScheduling")
        assert message == 'running PreBind plugin "VolumeBinding": it has changed'
        await client.until(lambda: volume_of(client).spec.claim_ref is not None)


async def test_two_pods_never_share_what_one_of_them_gets() -> None:
    claims = [a_claim(name, storage_class="late") for name in ("data", "more")]
    volumes = [a_volume(name, storage_class="late") for name in ("v1", "v2")]
    pods = using("data"), using("more", name="q")
    async with scheduling(a_client(a_node("n1"), STATIC, *claims, *volumes, *pods)) as client:

        def given() -> list[str]:
            stored = client.all(PERSISTENT_VOLUMES)
            return sorted(v.spec.claim_ref.name for v in stored if v.spec.claim_ref)

        await client.until(lambda: len(given()) == 2)
        assert given() == ["data", "more"]


async def test_a_deleted_pod_ends_its_binding() -> None:
    objects = a_node("n1", cpu="1"), LATE, a_claim(storage_class="late"), using("data", cpu="1")
    async with scheduling(a_client(*objects)) as client:
        await client.until(lambda: SELECTED in claim_of(client).metadata.annotations)
        client.remove(client.pod("p"))
        client.put(using("data", name="q", cpu="1"))
        client.put(a_volume(storage_class="late"))
        complete(client)
        assert await client.until_bound("q") == "n1"


@pytest.mark.parametrize("missing", ["claim", "volume", "class"])
async def test_what_a_pod_waits_for_wakes_it(missing: str) -> None:
    objects: dict[str, Any] = {
        "claim": bound(),
        "volume": a_volume(node="n1"),
        "class": a_storage_class(),
    }
    if missing == "class":
        objects |= {"claim": a_claim(storage_class="late"), "class": LATE}
    late = objects.pop(missing)
    client = a_client(a_node("n1"), using("data"), *objects.values())
    async with scheduling(client):
        await client.until_event("p", "FailedScheduling")
        client.put(late)
        if missing == "class":
            await client.until(lambda: SELECTED in claim_of(client).metadata.annotations)
            complete(client)
        assert await client.until_bound("p") == "n1"


async def test_a_claim_that_is_bound_meanwhile_wakes_the_pod() -> None:
    async with scheduling(a_client(a_node("n1"), a_claim(), using("data"))) as client:
        message = await client.until_event("p", "FailedScheduling")
        assert "pod has unbound immediate PersistentVolumeClaims" in message
        client.put(a_volume())
        complete(client)
        assert await client.until_bound("p") == "n1"


async def test_a_free_volume_wakes_the_pod() -> None:
    objects = a_node("n1"), STATIC, a_claim(storage_class="late"), using("data")
    async with scheduling(a_client(*objects)) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_volume(storage_class="late"))
        await client.until(lambda: volume_of(client).spec.claim_ref is not None)


async def test_a_node_with_the_label_that_a_volume_wants_wakes_the_pod() -> None:
    objects = a_node("n1"), bound(), a_volume(node="n2"), using("data")
    async with scheduling(a_client(*objects)) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_node("n2"))
        assert await client.until_bound("p") == "n2"


async def test_the_end_of_its_only_user_wakes_the_pod() -> None:
    user = using("data", name="user", node="n1")
    claim = bound(modes=("ReadWriteOncePod",))
    client = a_client(a_node("n1"), claim, a_volume(), user, using("data"))
    async with scheduling(client):
        await client.until_event("p", "FailedScheduling")
        client.remove(user)
        assert await client.until_bound("p") == "n1"
