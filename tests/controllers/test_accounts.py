"""What each namespace gets: its default account, the cluster's CA, tokens in secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from moorage.controllers.accounts import (
    RootCaController,
    TokenSecretController,
    default_accounts,
)
from moorage.controllers.accounts.root_ca import DESCRIPTION
from moorage.controllers.objects import SERVICE_ACCOUNTS
from moorage.wire.client.resources import CONFIG_MAPS, NAMESPACES, SECRETS
from tests.controllers.memory import MemoryClient, World

NOW = "2026-01-01T00:00:00Z"
ENDING = ForbiddenError("ending", details={"causes": [{"reason": "NamespaceTerminating"}]})
DEFAULT = {"metadata": {"name": "default"}}
ROOT = "kube-root-ca.crt"


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("default", "two"):
        world.client.put(NAMESPACES, namespace(name))
    return world


def namespace(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {}, "status": {}}


def keys(client: MemoryClient, resource: Any) -> list[str]:
    return sorted(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                  for obj in client.all(resource))  # fmt: skip


@asynccontextmanager
async def running_default_accounts(world: World) -> AsyncIterator[MemoryClient]:
    controller = default_accounts(world.client, world.informers, world.clock)
    async with world.running(controller.run()) as client:
        yield client


async def test_every_open_namespace_has_its_default_account(world: World) -> None:
    world.client.put(NAMESPACES, namespace("going", deletionTimestamp=NOW))
    async with running_default_accounts(world) as client:
        assert keys(client, SERVICE_ACCOUNTS) == ["default/default", "two/default"]
        body = client.asked("create")[0].body
        assert body == {"metadata": {"name": "default", "namespace": "default"}}
        client.put(NAMESPACES, namespace("three"))
        client.drop(SERVICE_ACCOUNTS, "default", "two")
        await world.settled()
        result = keys(client, SERVICE_ACCOUNTS)
        assert result == ["default/default", "three/default", "two/default"]


async def test_other_accounts_are_not_made_again(world: World) -> None:
    world.client.put(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}})
    async with running_default_accounts(world) as client:
        client.drop(SERVICE_ACCOUNTS, "robot")
        await world.settled()
        assert keys(client, SERVICE_ACCOUNTS) == ["default/default", "two/default"]
        assert len(client.writes) == 2


@pytest.mark.parametrize("error", [AlreadyExistsError("there"), ENDING])
async def test_an_account_that_is_there_or_not_wanted_is_no_failure(
    world: World, error: Exception
) -> None:
    world.client.failures += [("create", SERVICE_ACCOUNTS.plural, error)] * 2
    async with running_default_accounts(world) as client:
        await world.settled(100)
        assert len(client.asked("create")) == 2


@pytest.mark.failing_reconciles
async def test_a_refused_account_is_tried_again(world: World) -> None:
    world.client.failures.append(("create", SERVICE_ACCOUNTS.plural, ForbiddenError("no")))
    async with running_default_accounts(world) as client:
        await world.settled(1)
        assert keys(client, SERVICE_ACCOUNTS) == ["default/default", "two/default"]


@asynccontextmanager
async def root_ca(world: World) -> AsyncIterator[MemoryClient]:
    controller = RootCaController(world.client, world.informers, "PEM", world.clock)
    async with world.running(controller.run()) as client:
        yield client


async def test_every_open_namespace_has_the_clusters_ca(world: World) -> None:
    world.client.put(NAMESPACES, namespace("going", deletionTimestamp=NOW))
    async with root_ca(world) as client:
        assert keys(client, CONFIG_MAPS) == [f"default/{ROOT}", f"two/{ROOT}"]
        assert client.asked("create")[0].body == {
            "metadata": {"name": ROOT, "namespace": "default",
                         "annotations": {"kubernetes.io/description": DESCRIPTION}},
            "data": {"ca.crt": "PEM"},
        }  # fmt: skip
        lists = client.asked("list", CONFIG_MAPS)
        assert [listing.more["field_selector"] for listing in lists] == [f"metadata.name={ROOT}"]
        client.put(NAMESPACES, namespace("three"))
        client.drop(CONFIG_MAPS, ROOT, "two")
        await world.settled()
        assert keys(client, CONFIG_MAPS) == [f"default/{ROOT}", f"three/{ROOT}", f"two/{ROOT}"]


@pytest.mark.parametrize(
    ("data", "annotations"),
    [
        ({"ca.crt": "other"}, {"kubernetes.io/description": DESCRIPTION}),
        ({"ca.crt": "PEM", "more": "x"}, {"kubernetes.io/description": DESCRIPTION}),
        ({"ca.crt": "PEM"}, {}),
        ({}, {}),
    ],
)
async def test_a_changed_ca_is_restored(
    world: World, data: dict[str, str], annotations: dict[str, str]
) -> None:
    changed = {"metadata": {"name": ROOT, "namespace": "default", "annotations": annotations},
               "data": data}  # fmt: skip
    world.client.put(CONFIG_MAPS, changed)
    async with root_ca(world) as client:
        config_map = client.find(CONFIG_MAPS, ROOT)
        assert config_map is not None
        assert config_map["data"] == {"ca.crt": "PEM"}
        assert config_map["metadata"]["annotations"] == {"kubernetes.io/description": DESCRIPTION}
        (patch,) = client.asked("patch")
        assert patch.body["metadata"]["uid"] == ROOT
        client.requests.clear()
        client.put(CONFIG_MAPS, config_map)
        await world.settled()
        assert client.writes == []


async def test_a_ca_that_goes_while_it_is_restored_comes_again(world: World) -> None:
    world.client.put(CONFIG_MAPS, {"metadata": {"name": ROOT}, "data": {"ca.crt": "x"}})
    gone = NotFoundError.of("configmaps", ROOT)
    world.client.failures.append(("patch", CONFIG_MAPS.plural, gone))
    async with root_ca(world) as client:
        client.drop(CONFIG_MAPS, ROOT)
        await world.settled()
        assert f"default/{ROOT}" in keys(client, CONFIG_MAPS)


async def test_no_ca_is_wanted_in_an_ending_namespace(world: World) -> None:
    world.client.failures += [("create", CONFIG_MAPS.plural, ENDING)] * 2
    async with root_ca(world) as client:
        await world.settled(100)
        assert keys(client, CONFIG_MAPS) == []


@pytest.mark.failing_reconciles
async def test_a_refused_ca_is_tried_again(world: World) -> None:
    world.client.failures.append(("create", CONFIG_MAPS.plural, ForbiddenError("no")))
    async with root_ca(world) as client:
        await world.settled(1)
        assert keys(client, CONFIG_MAPS) == [f"default/{ROOT}", f"two/{ROOT}"]


@asynccontextmanager
async def token_secrets(world: World) -> AsyncIterator[MemoryClient]:
    for namespace_ in ("default", "two"):
        for name in ("robot", "late"):
            path = f"/api/v1/namespaces/{namespace_}/serviceaccounts/{name}/token"
            answer = {"status": {"token": f"token-{namespace_}-{name}"}}
            world.client.answers["POST", path] = json.dumps(answer).encode()
    controller = TokenSecretController(world.client, world.informers, "PEM", world.clock)
    async with world.running(controller.run()) as client:
        yield client


def account(name: str = "robot", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **meta}}


def secret(
    name: str, of: str | None = "robot", *, uid: str = "", data: Any = None, **meta: Any
) -> dict[str, Any]:
    annotations = {} if of is None else {"kubernetes.io/service-account.name": of}
    if uid:
        annotations["kubernetes.io/service-account.uid"] = uid
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, **meta},
        "type": "kubernetes.io/service-account-token",
        "data": data or {},
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_secret_gets_token_ca_namespace_and_the_accounts_uid(world: World) -> None:
    world.client.put(SERVICE_ACCOUNTS, account())
    world.client.put(SECRETS, secret("s"))
    world.client.put(SECRETS, secret("unnamed", None))
    async with token_secrets(world) as client:
        obj = client.find(SECRETS, "s")
        assert obj is not None
        assert obj["data"] == {
            "namespace": encoded("default"),
            "ca.crt": encoded("PEM"),
            "token": encoded("token-default-robot"),
        }
        annotations = obj["metadata"]["annotations"]
        assert annotations["kubernetes.io/service-account.uid"] == "robot"
        (asked,) = client.asked("request")
        assert json.loads(asked.more["body"]) == {
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "spec": {
                "expirationSeconds": 2**32,
                "boundObjectRef": {
                    "kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "s",
                },
            },
        }  # fmt: skip
        (listed,) = client.asked("list", SECRETS)
        assert listed.more["field_selector"] == "type=kubernetes.io/service-account-token"
        client.requests.clear()
        client.put(SECRETS, obj)
        await world.settled()
        assert client.writes == client.asked("request") == []


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        ({"token": "t", "ca.crt": encoded("PEM")}, {"namespace"}),
        ({"token": "t", "namespace": encoded("default"), "ca.crt": encoded("old")}, {"ca.crt"}),
        ({"namespace": encoded("default"), "ca.crt": encoded("PEM")}, {"token"}),
    ],
)
async def test_only_what_is_missing_or_wrong_is_written(
    world: World, data: dict[str, str], sent: set[str]
) -> None:
    world.client.put(SERVICE_ACCOUNTS, account())
    world.client.put(SECRETS, secret("s", uid="robot", data=data))
    async with token_secrets(world) as client:
        (patch,) = client.asked("patch")
        assert patch.body["data"].keys() == sent
        assert patch.body["metadata"].keys() == {"uid", "resourceVersion", "annotations"}


async def test_a_whole_secret_without_the_uid_gets_it(world: World) -> None:
    data = {"token": "t", "namespace": encoded("default"), "ca.crt": encoded("PEM")}
    world.client.put(SERVICE_ACCOUNTS, account())
    world.client.put(SECRETS, secret("s", data=data))
    world.client.put(SECRETS, secret("t", data=data, uid="robot"))
    async with token_secrets(world) as client:
        assert [request.key for request in client.asked("patch")] == ["default/s"]


async def test_secrets_end_with_their_account_and_no_sooner(world: World) -> None:
    world.client.put(SERVICE_ACCOUNTS, account())
    world.client.put(SERVICE_ACCOUNTS, account("other"))
    path = "/api/v1/namespaces/default/serviceaccounts/other/token"
    world.client.answers["POST", path] = b'{"status": {"token": "t"}}'
    for name, of in (("a", "robot"), ("b", "robot"), ("c", "other")):
        world.client.put(SECRETS, secret(name, of))
    async with token_secrets(world) as client:
        assert client.names(SECRETS) == ["a", "b", "c"]
        client.drop(SERVICE_ACCOUNTS, "robot")
        await world.settled()
        assert client.names(SECRETS) == ["c"]
        assert {request.key: request.more for request in client.asked("delete")} == {
            "default/a": {"uid": "a"}, "default/b": {"uid": "b"},
        }  # fmt: skip


async def test_a_secret_of_an_earlier_account_goes(world: World) -> None:
    world.client.put(SERVICE_ACCOUNTS, account(uid="second"))
    world.client.put(SECRETS, secret("old", uid="first"))
    world.client.put(SECRETS, secret("new", uid="second"))
    async with token_secrets(world) as client:
        assert client.names(SECRETS) == ["new"]
        client.put(SERVICE_ACCOUNTS, account(uid="third"))
        await world.settled()
        assert client.names(SECRETS) == []


async def test_the_server_is_asked_for_an_account_that_the_copy_lacks(world: World) -> None:
    world.client.put(SECRETS, secret("s", "late"))
    async with token_secrets(world) as client:
        assert client.names(SECRETS) == []
        live = {"metadata": {"name": "late", "namespace": "default", "uid": "u-late"}}
        client.put_unseen(SERVICE_ACCOUNTS, live)
        client.put(SECRETS, secret("s", "late"))
        await world.settled()
        assert client.names(SECRETS) == ["s"]
        obj = client.find(SECRETS, "s")
        assert obj is not None
        assert obj["data"]["token"] == encoded("token-default-late")


async def test_a_secret_on_its_way_out_is_left_alone(world: World) -> None:
    world.client.put(SECRETS, secret("s", deletionTimestamp=NOW, finalizers=["x/y"]))
    async with token_secrets(world) as client:
        assert client.writes == []


async def test_a_secret_that_goes_by_itself_is_no_failure(world: World) -> None:
    world.client.put(SECRETS, secret("s"))
    world.client.failures.append(("delete", SECRETS.plural, NotFoundError.of("secrets", "s")))
    async with token_secrets(world) as client:
        await world.settled(10)
        assert len(client.asked("delete")) == 1
