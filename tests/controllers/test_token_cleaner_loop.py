"""Token Secrets that no one uses: marked, then deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from moorage.api.configuration import Secret
from moorage.api.errors import ConflictError
from moorage.controllers.accounts import LegacyTokenCleaner
from moorage.controllers.accounts.token_cleaner import Step, step_of
from moorage.wire.client.resources import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS
from tests.clocks import START
from tests.controllers.memory import MemoryClient, World

LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID = "kubernetes.io/legacy-token-invalid-since"
TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
YEAR = timedelta(days=365)
OLD = "2024-01-01T00:00:00Z"


def secret(created: str = OLD, *, of: str = "sa", uid: str = "", **labels: str) -> dict[str, Any]:
    annotations = {"kubernetes.io/service-account.name": of}
    if uid:
        annotations["kubernetes.io/service-account.uid"] = uid
    meta = {"name": "s", "namespace": "default", "creationTimestamp": created}
    return {
        "metadata": {**meta, "annotations": annotations, "labels": labels},
        "type": "kubernetes.io/service-account-token",
    }


def labelled(**labels: str) -> dict[str, Any]:
    keys = {"used": LAST_USED, "invalid": INVALID}
    return secret(**{keys[name]: value for name, value in labels.items()})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (secret(), Step.MARK),
        (secret("2025-01-01T00:00:00Z"), Step.KEEP),
        (secret("2024-12-31T23:59:59Z"), Step.MARK),
        (labelled(used="2025-01-01"), Step.KEEP),
        (labelled(used="2024-12-31"), Step.MARK),
        (labelled(used="once"), Step.KEEP),
        (labelled(invalid="2025-01-01"), Step.KEEP),
        (labelled(invalid="2024-12-31"), Step.DELETE),
        (labelled(invalid="2024-12-31", used="2025-06-01"), Step.KEEP),
        (labelled(invalid="once"), Step.MARK),
        ({**secret(), "type": "Opaque"}, Step.KEEP),
    ],
)
def test_steps(body: dict[str, Any], expected: Step) -> None:
    assert step_of(msgspec.convert(body, Secret), START, YEAR) is expected


@pytest.fixture
def world() -> World:
    """A world that has tracked for years, with an account that lists the Secret."""
    world = World()
    track(world.client, "2023-01-01")
    account = {"metadata": {"name": "sa", "namespace": "default"}, "secrets": [{"name": "s"}]}
    world.client.put(SERVICE_ACCOUNTS, account)
    return world


def track(client: MemoryClient, since: str) -> None:
    meta = {"name": TRACKING, "namespace": "kube-system"}
    client.put(CONFIG_MAPS, {"metadata": meta, "data": {"since": since}})


async def cleaned(world: World, body: dict[str, Any]) -> dict[str, Any] | None:
    """The Secret after the first look at it."""
    world.client.put(SECRETS, body)
    cleaner = LegacyTokenCleaner(world.client, YEAR, world.clock)
    async with world.running(cleaner.run()) as client:
        return client.find(SECRETS, "s")


async def test_an_unused_token_is_marked(world: World) -> None:
    after = await cleaned(world, secret())
    assert after is not None
    assert after["metadata"]["labels"] == {INVALID: "2026-01-01"}


async def test_a_token_that_was_marked_a_year_ago_is_deleted(world: World) -> None:
    assert await cleaned(world, labelled(invalid="2024-12-31")) is None
    (deleted,) = world.client.asked("delete")
    assert deleted.more["resource_version"]


@pytest.mark.parametrize("since", ["2025-01-01", "", "2024-13-01"])
async def test_nothing_happens_before_uses_were_tracked_for_a_year(
    world: World, since: str
) -> None:
    track(world.client, since)
    await cleaned(world, labelled(invalid="2024-12-31"))
    assert world.client.writes == []


async def test_without_tracking_nothing_happens(world: World) -> None:
    world.client.drop(CONFIG_MAPS, TRACKING, "kube-system")
    await cleaned(world, secret())
    assert world.client.writes == []


@pytest.mark.parametrize("body", [secret(of="other"), secret(of=""), secret(uid="earlier")])
async def test_tokens_that_no_account_lists_stay(world: World, body: dict[str, Any]) -> None:
    await cleaned(world, body)
    assert world.client.writes == []


async def test_a_token_that_a_pod_mounts_stays(world: World) -> None:
    spec = {"volumes": [{"name": "v", "secret": {"secretName": "s"}}], "containers": []}
    world.client.put(PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    await cleaned(world, labelled(invalid="2024-12-31"))
    assert world.client.writes == []


async def test_a_use_in_between_saves_it_until_the_next_day(world: World) -> None:
    world.client.put(SECRETS, labelled(invalid="2024-12-31"))
    world.client.failures.append(("delete", SECRETS.plural, ConflictError("used")))
    cleaner = LegacyTokenCleaner(world.client, YEAR, world.clock)
    async with world.running(cleaner.run()) as client:
        assert client.names(SECRETS) == ["s"]
        await world.settled(24 * 3600)
        assert client.names(SECRETS) == []
