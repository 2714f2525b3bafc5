"""Discovery: the resources that a server has, from its documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.api.errors import NotFoundError, StatusError
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.discovery import SECOND_HOMES, Discovered, discover, read_version
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError
from tests.apiserver.running_server import serving as api_server
from tests.ports import free_port
from tests.wire.client.fake_api import answer, refusal
from tests.wire.streaming.servers import serving

VERBS = ["create", "delete", "get", "list", "watch"]
Documents = dict[str, Callable[[], web.Response]]


def resource_list(*names: str, is_namespaced: bool = True) -> Callable[[], web.Response]:
    entries = [
        {"name": name, "kind": name.title(), "namespaced": is_namespaced, "verbs": VERBS}
        for name in names
    ]
    return answer({"kind": "APIResourceList", "resources": entries})


def group(name: str, *versions: str, preferred: str = "") -> dict[str, Any]:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    document: dict[str, Any] = {"name": name, "versions": entries}
    if preferred:
        document["preferredVersion"] = {
            "groupVersion": f"{name}/{preferred}",
            "version": preferred,
        }
    return document


def documents(*groups: dict[str, Any]) -> Documents:
    """A server with pods, nodes and these groups, whose resources are still to be added."""
    return {
        "/api": answer({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis": answer({"kind": "APIGroupList", "groups": groups}),
        "/api/v1": resource_list("pods", "pods/status", "pods/log"),
    }


@asynccontextmanager
async def client_of(served: Documents) -> AsyncIterator[Client]:
    async def handle(request: web.Request) -> web.Response:
        return served.get(request.path, refusal(404, "NotFound", f"no {request.path}"))()

    async with (
        serving(handle) as url,
        Client(ClientConfig(server=url.rstrip("/")), user_agent="test") as client,
    ):
        yield client


def places(discovered: Discovered) -> set[tuple[str, str, str]]:
    """(group, plural, version) of each resource. Fails if one is there twice."""
    resources = [entry.resource for entry in discovered.served]
    triples = [(resource.group, resource.plural, resource.version) for resource in resources]
    assert len(set(triples)) == len(triples)
    return set(triples)


@pytest.mark.parametrize(
    ("groups", "lists", "expected"),
    [
        pytest.param([], {}, set(), id="the core group alone, without its subresources"),
        pytest.param(
            [group("x.io", "v1")],
            {"x.io/v1": resource_list("ones", "twos", "twos/scale")},
            {("x.io", "ones", "v1"), ("x.io", "twos", "v1")},
            id="a group",
        ),
        pytest.param(
            [group("x.io", "v2", "v1", preferred="v1")],
            {"x.io/v1": resource_list("olds"), "x.io/v2": resource_list("olds", "news")},
            {("x.io", "olds", "v1"), ("x.io", "news", "v2")},
            id="the preferred version, and another for what it lacks",
        ),
        pytest.param(
            [group("x.io", "v3", "v2")],
            {"x.io/v3": resource_list("ones"), "x.io/v2": resource_list("ones")},
            {("x.io", "ones", "v3")},
            id="the first version where none is preferred",
        ),
        pytest.param(
            [group("x.io", "v1"), group("y.io", "v1")],
            {"x.io/v1": resource_list("ones"), "y.io/v1": resource_list("ones")},
            {("x.io", "ones", "v1"), ("y.io", "ones", "v1")},
            id="one name in two groups",
        ),
        pytest.param(
            [group("extensions", "v1beta1"), group("apps", "v1")],
            {
                "extensions/v1beta1": resource_list("deployments", "ingresses"),
                "apps/v1": resource_list("deployments"),
            },
            {("apps", "deployments", "v1"), ("extensions", "ingresses", "v1beta1")},
            id="a former home of another resource",
        ),
        pytest.param(
            [group("extensions", "v1beta1")],
            {"extensions/v1beta1": resource_list("deployments")},
            {("extensions", "deployments", "v1beta1")},
            id="a former home that is the only one",
        ),
    ],
)
async def test_each_resource_is_found_once(
    groups: list[dict[str, Any]], lists: Documents, expected: set[tuple[str, str, str]]
) -> None:
    served = documents(*groups)
    served |= {f"/apis/{version}": document for version, document in lists.items()}
    async with client_of(served) as client:
        discovered = await discover(client)
    assert places(discovered) == {("", "pods", "v1"), *expected}
    assert discovered.failures == ()


@pytest.mark.parametrize("version", ["v1", "broken.io/v1"])
async def test_a_version_that_cannot_be_read_is_a_failure_beside_the_others(version: str) -> None:
    served = documents(group("broken.io", "v1"), group("x.io", "v1"))
    served["/apis/broken.io/v1"] = resource_list("twos")
    served["/apis/x.io/v1"] = resource_list("ones")
    path = f"/apis/{version}" if "/" in version else f"/api/{version}"
    served[path] = refusal(503, "ServiceUnavailable", "not now")
    everything = {("", "pods", "v1"), ("broken.io", "twos", "v1"), ("x.io", "ones", "v1")}
    async with client_of(served) as client:
        discovered = await discover(client)
    ((failed, reason),) = discovered.failures
    assert (failed, reason) == (version, "not now")
    failed_group = version.rpartition("/")[0]
    assert places(discovered) == {place for place in everything if place[0] != failed_group}


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_without_the_list_of_groups_there_is_no_discovery(path: str) -> None:
    served = documents()
    served[path] = refusal(403, "Forbidden", "not for you")
    async with client_of(served) as client:
        with pytest.raises(StatusError, match="not for you"):
            await discover(client)


async def test_a_server_that_does_not_answer_is_unreachable() -> None:
    config = ClientConfig(server=f"http://127.0.0.1:{free_port()}")
    async with Client(config, user_agent="test") as client:
        with pytest.raises(UnreachableError):
            await discover(client)
        with pytest.raises(UnreachableError):
            await read_version(client, "v1")


async def test_resources_are_chosen_by_all_their_verbs() -> None:
    served = documents()
    served["/api/v1"] = answer(
        {
            "resources": [
                {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": VERBS},
                {"name": "bindings", "kind": "Binding", "namespaced": True, "verbs": ["create"]},
                {"name": "nodes", "kind": "Node"},
            ]
        }
    )
    async with client_of(served) as client:
        discovered = await discover(client)

    def chosen(*verbs: str) -> list[str]:
        return [resource.plural for resource in discovered.with_verbs(*verbs)]

    assert chosen() == ["pods", "bindings", "nodes"]
    assert chosen("create") == ["pods", "bindings"]
    assert chosen("create", "watch") == ["pods"]
    assert chosen("create", "deletecollection") == []


@pytest.mark.parametrize(
    ("version", "path"), [("v1", "/api/v1"), ("node.k8s.io/v1", "/apis/node.k8s.io/v1")]
)
async def test_one_version_is_read(version: str, path: str) -> None:
    async with client_of({path: resource_list("ones", "ones/status", "twos")}) as client:
        served = await read_version(client, version)
        with pytest.raises(NotFoundError, match="no /apis/other"):
            await read_version(client, "other.io/v1")
    assert [entry.resource.plural for entry in served] == ["ones", "twos"]
    assert {entry.resource.api_version for entry in served} == {version}
    assert {entry.verbs for entry in served} == {frozenset(VERBS)}


async def test_a_real_server_has_every_kind_once_and_at_home(tmp_path: Path) -> None:
    async with api_server(tmp_path) as running:
        config = ClientConfig(
            server=running.url,
            ca=running.authority.pair.certificate.read_bytes(),
            token="admin-token",
        )
        async with Client(config, user_agent="test") as client:
            discovered = await discover(client)
    assert discovered.failures == ()
    kinds = {
        (served.group, kind.plural): kind
        for kind in ALL_KINDS
        for served in kind.served
        if (served.group, kind.plural) not in SECOND_HOMES
    }
    assert {place[:2] for place in places(discovered)} == set(kinds)
    for entry in discovered.served:
        resource = entry.resource
        kind = kinds[resource.group, resource.plural]
        assert (resource.kind, resource.is_namespaced) == (kind.name, kind.is_namespaced)
        assert entry.verbs == frozenset(kind.verbs)
    paths = {
        (entry.resource.group, entry.resource.plural): entry.resource.path("ns", "x")
        for entry in discovered.served
    }
    for known in (PODS, NODES, RUNTIME_CLASSES):
        assert paths[known.group, known.plural] == known.path("ns", "x")
