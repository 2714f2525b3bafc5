"""Claims that grow: who is waited for."""

from __future__ import annotations

from typing import Any

from moorage.controllers.ephemeral_volumes import claim_expansion
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.api.claims.objects import claim_json, volume_json
from tests.controllers.memory import World

EVENT = ("data", "Normal", "ExternalExpanding",
         "waiting for an external controller to expand this PVC")  # fmt: skip


def claim(size: str, phase: str = "Bound", **more: Any) -> Any:
    capacity = {"capacity": {"storage": "1Gi"}}
    return claim_json(size=size, volume="pv", phase=phase, status=capacity, **more)


def controller(world: World) -> Any:
    return claim_expansion(world.informers, world.recorder, world.clock).run()


async def test_a_claim_that_grows_waits_for_an_external_controller() -> None:
    world = World()
    world.client.put(PERSISTENT_VOLUME_CLAIMS, claim("1Gi"))
    world.client.put(PERSISTENT_VOLUMES, volume_json(claim=claim("1Gi")))
    async with world.running(controller(world)) as client:
        await world.settled(1)
        assert client.events == []
        client.put(PERSISTENT_VOLUME_CLAIMS, claim("2Gi"))
        await world.settled(1)
        assert client.events == [EVENT]
        client.put(PERSISTENT_VOLUME_CLAIMS, claim("2Gi", annotations={"a": "b"}))
        await world.settled(1)
        assert client.events == [EVENT]
        assert client.writes == []


async def test_claims_that_wait_are_found_at_the_start() -> None:
    world = World()
    world.client.put(PERSISTENT_VOLUME_CLAIMS, claim("2Gi"))
    world.client.put(PERSISTENT_VOLUMES, volume_json(claim=claim("1Gi")))
    async with world.running(controller(world)) as client:
        await world.settled(1)
        assert client.events == [EVENT]


async def test_a_claim_without_a_volume_of_its_own_waits_for_nothing() -> None:
    for volume in (None, volume_json(), volume_json(claim=claim_json("data", uid="other"))):
        world = World()
        if volume is not None:
            world.client.put(PERSISTENT_VOLUMES, volume)
        async with world.running(controller(world)) as client:
            client.put(PERSISTENT_VOLUME_CLAIMS, claim("2Gi"))
            client.put(PERSISTENT_VOLUME_CLAIMS, claim("3Gi", "Lost"))
            await world.settled(1)
            assert client.events == []
