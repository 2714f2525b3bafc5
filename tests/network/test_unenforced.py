"""A node that cannot enforce policies: which pods start there."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.network.agent import NetworkRefusedError
from moorage.network.objects import NETWORK_POLICIES
from moorage.network.unenforced import UnenforcedNetwork
from moorage.wire.client.resources import RUNTIME_CLASSES
from tests.controllers.memory import World
from tests.network.objects import a_policy

CLASS = {"metadata": {"name": "shut", "annotations": {"runtime.moorage.dev/network": "restricted"}}}


async def test_pods_that_no_policy_selects_start_and_others_wait() -> None:
    world = World()
    selecting: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "a"}}, "ingress": []}
    world.client.put(NETWORK_POLICIES, a_policy("deny", **selecting))
    world.client.put(RUNTIME_CLASSES, CLASS)
    world.client.put(RUNTIME_CLASSES, {"metadata": {"name": "open"}})
    network = UnenforcedNetwork(world.client, "no nftables", world.clock)
    async with world.running(network.run()):
        await network.admit("u", "default", {"app": "b"}, ["10.244.0.3"], runtime_class="open")
        await network.admit("u", "other", {"app": "a"}, ["10.244.0.3"])
        with pytest.raises(NetworkRefusedError) as refused:
            await network.admit("u", "default", {"app": "a"}, ["10.244.0.3"])
        assert str(refused.value) == (
            "NetworkPolicy deny selects the pod, and this node cannot enforce it: no nftables"
        )
        with pytest.raises(NetworkRefusedError, match='"shut" has the network restricted'):
            await network.admit("u", "default", {}, ["10.244.0.3"], runtime_class="shut")
