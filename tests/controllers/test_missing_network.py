"""Events on objects that the cluster does not implement yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.missing_network import EVERYTHING
from moorage.controllers.missing_network import INGRESSES, NETWORK_POLICIES, MissingNetworkEvents
from moorage.wire.client.resources import SERVICES
from tests.controllers.memory import World


def controller(world: World) -> Any:
    return MissingNetworkEvents(world.client, world.recorder, world.clock, EVERYTHING).run()


def one(world: World, name: str = "a", spec: Any = None, *, age_s: float = 0) -> dict[str, Any]:
    created = format_time(world.clock.now() - timedelta(seconds=age_s))
    metadata = {"name": name, "namespace": "default", "creationTimestamp": created}
    return {"metadata": metadata, "spec": spec or {}}


@pytest.mark.parametrize(
    ("resource", "spec", "begins"),
    [
        (SERVICES, {"type": "ClusterIP", "clusterIP": "10.96.0.9"}, "nothing routes the"),
        (SERVICES, {"type": "LoadBalancer", "clusterIP": "10.96.0.9"}, "nothing routes the"),
        (INGRESSES, {}, "nothing serves this Ingress"),
        (NETWORK_POLICIES, {}, "nothing enforces this NetworkPolicy"),
        (SERVICES, {"type": "ClusterIP", "clusterIP": "None"}, ""),
        (SERVICES, {"type": "ExternalName", "externalName": "a.example"}, ""),
    ],
)  # fmt: skip
async def test_an_event_on_each_new_object(resource: Any, spec: Any, begins: str) -> None:
    world = World()
    async with world.running(controller(world)) as client:
        await world.settled(1)
        client.put(resource, one(world, spec=spec))
        await world.settled(1)
        client.put(resource, {**one(world, spec=spec), "changed": True})
        await world.settled(1)
        if not begins:
            assert client.events == []
            return
        ((name, type_, reason, message),) = client.events
        assert (name, type_, reason) == ("a", "Warning", "NotImplemented")
        assert message.startswith(begins)


async def test_objects_from_before_have_their_event() -> None:
    world = World()
    spec = {"type": "ClusterIP", "clusterIP": "10.96.0.9"}
    world.client.put(SERVICES, one(world, "old", spec, age_s=3600))
    world.client.put(SERVICES, one(world, "kubernetes", spec))
    async with world.running(controller(world)) as client:
        await world.settled(1)
        assert client.events == []
