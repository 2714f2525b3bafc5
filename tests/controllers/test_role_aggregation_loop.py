"""The role aggregation loop: when rules are gathered, and what is written."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import NotFoundError
from moorage.controllers.role_aggregation import role_aggregation
from moorage.wire.client.resources import CLUSTER_ROLES
from tests.controllers.memory import World


def role(name: str, verb: str = "", **labels: str) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}] if verb else []
    return {"metadata": {"name": name, "labels": labels}, "rules": rules}


def gathering(name: str, **labels: str) -> dict[str, Any]:
    selectors = [{"matchLabels": {key: value}} for key, value in labels.items()]
    return {**role(name), "aggregationRule": {"clusterRoleSelectors": selectors}}


def verbs(role: dict[str, Any] | None) -> list[str]:
    assert role is not None
    return [rule["verbs"][0] for rule in role["rules"]]


async def test_rules_are_gathered_by_every_selector_and_follow_changes() -> None:
    world = World()
    world.client.put(CLUSTER_ROLES, gathering("all", a="1", b="1"))
    world.client.put(CLUSTER_ROLES, gathering("few", a="1"))
    for new_role in (role("y", "get", a="1"), role("x", "list", a="1"), role("z", "watch", b="1"),
                     role("none", "delete", c="1")):  # fmt: skip
        world.client.put(CLUSTER_ROLES, new_role)
    controller = role_aggregation(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        assert verbs(client.find(CLUSTER_ROLES, "all")) == ["list", "get", "watch"]
        assert verbs(client.find(CLUSTER_ROLES, "few")) == ["list", "get"]
        for patch in client.asked("patch"):
            assert patch.body["metadata"].keys() == {"uid", "resourceVersion"}
        client.requests.clear()
        client.put(CLUSTER_ROLES, role("none", "delete", c="2"))
        await world.settled()
        assert client.writes == []
        client.drop(CLUSTER_ROLES, "y")
        client.put(CLUSTER_ROLES, role("none", "delete", a="1"))
        await world.settled()
        assert verbs(client.find(CLUSTER_ROLES, "few")) == ["delete", "list"]
        client.failures.append(
            ("patch", CLUSTER_ROLES.plural, NotFoundError.of("clusterroles", "few"))
        )
        client.drop(CLUSTER_ROLES, "x")
        await world.settled(10)
