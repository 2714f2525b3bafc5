"""Bootstrap tokens: deleted when they expire, signing while they live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import jwt
import msgspec
import pytest

from moorage.api.errors import ConflictError, NotFoundError
from moorage.controllers.bootstraptokens import (
    bootstrap_signer,
    changes,
    detached_signature,
    token_cleaner,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS
from tests.api.test_bootstrap_tokens import secret
from tests.controllers.memory import MemoryClient, World

CONTENT = "apiVersion: v1\nkind: Config\n"


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def tokens(world: World) -> AsyncIterator[MemoryClient]:
    informer = Informer(world.client, SECRETS, clock=world.clock)
    cleaner = token_cleaner(world.client, informer, world.clock)
    signer = bootstrap_signer(world.client, informer, world.clock)
    async with world.running(informer.run(), cleaner.run(), signer.run()) as client:
        yield client


async def test_a_token_is_deleted_when_it_expires(world: World) -> None:
    world.client.put(SECRETS, secret(expiration="2026-01-01T00:01:00Z"))
    world.client.put(SECRETS, secret("bootstrap-token-bad000", expiration="soon"))
    world.client.put(SECRETS, secret("bootstrap-token-forever"))
    opaque = msgspec.structs.replace(secret("other", expiration="soon"), type="Opaque")
    world.client.put(SECRETS, opaque)
    async with tokens(world) as client:
        kept = ["bootstrap-token-07401b", "bootstrap-token-forever", "other"]
        assert client.names(SECRETS) == kept
        assert client.asked("delete")[0].more == {"uid": "1"}
        await world.settled(59)
        assert client.names(SECRETS) == kept
        await world.settled(1)
        assert client.names(SECRETS) == kept[1:]


@pytest.mark.parametrize("error", [NotFoundError("gone"), ConflictError("another")])
async def test_a_token_that_is_gone_is_no_failure(world: World, error: Exception) -> None:
    world.client.put(SECRETS, secret(expiration="soon"))
    world.client.failures.append(("delete", SECRETS.plural, error))
    async with tokens(world) as client:
        assert len(client.asked("delete")) == 1


def test_a_signature_verifies_the_content() -> None:
    header, empty, signature = detached_signature(CONTENT, "07401b", "s" * 32).split(".")
    assert empty == ""
    whole = jwt.PyJWS().encode(CONTENT.encode(), "s" * 32, "HS256", {"kid": "07401b", "typ": None})
    assert (header, signature) == (whole.split(".")[0], whole.split(".")[2])


@pytest.mark.parametrize(
    ("data", "wanted", "expected"),
    [
        ({"kubeconfig": "x"}, {}, {}),
        ({"jws-kubeconfig-a": "1"}, {"jws-kubeconfig-a": "1"}, {}),
        ({"jws-kubeconfig-a": "1"}, {"jws-kubeconfig-a": "2"}, {"jws-kubeconfig-a": "2"}),
        ({"jws-kubeconfig-a": "1", "b": "c"}, {}, {"jws-kubeconfig-a": None}),
    ],
)
def test_only_signatures_change(
    data: dict[str, str], wanted: dict[str, str], expected: dict[str, str | None]
) -> None:
    assert changes(data, wanted) == expected


async def test_each_token_signs_the_configuration(world: World) -> None:
    info = {"metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": CONTENT, "jws-kubeconfig-gone00": "x"}}  # fmt: skip
    world.client.put(CONFIG_MAPS, info)
    world.client.put(SECRETS, secret())
    async with tokens(world) as client:
        signature = detached_signature(CONTENT, "07401b", "f395accd246ae52d")
        stored = client.find(CONFIG_MAPS, "cluster-info", "kube-public")
        assert stored is not None
        assert stored["data"] == {"kubeconfig": CONTENT, "jws-kubeconfig-07401b": signature}
        client.drop(SECRETS, "bootstrap-token-07401b", "kube-system")
        await world.settled()
        stored = client.find(CONFIG_MAPS, "cluster-info", "kube-public")
        assert stored is not None
        assert stored["data"] == {"kubeconfig": CONTENT}
        writes = len(client.writes)
        await world.settled(1)
        assert len(client.writes) == writes


async def test_without_a_configuration_there_is_nothing_to_sign(world: World) -> None:
    world.client.put(SECRETS, secret())
    async with tokens(world) as client:
        assert client.writes == []
