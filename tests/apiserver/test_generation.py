"""metadata.generation: raised by what changes the wish, by nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.running_server import Answer, Running, serving

CORE = "/api/v1/namespaces/default"
POD = f"{CORE}/pods/p"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        }  # fmt: skip
        assert (await running.ask("POST", f"{CORE}/pods", pod)).status == 201
        yield running


async def patch(server: Running, body: Any, subresource: str = "", media: str = MERGE) -> Answer:
    path = POD + (f"/{subresource}" if subresource else "")
    answer = await server.ask("PATCH", path, body, Content_Type=media)
    assert answer.status == 200, answer.text
    return answer


async def bind(server: Running) -> None:
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "labels": {"a": "b"}},
        "target": {"kind": "Node", "name": "n1"},
    }  # fmt: skip
    assert (await server.ask("POST", f"{POD}/binding", binding)).status == 201


async def generation(server: Running) -> int:
    number: int = (await server.ask("GET", POD)).json["metadata"]["generation"]
    return number


async def test_binding_a_pod_keeps_the_generation(server: Running) -> None:
    assert await generation(server) == 1
    await bind(server)
    pod = (await server.ask("GET", POD)).json
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["generation"] == 1


async def test_status_and_metadata_changes_keep_the_generation(server: Running) -> None:
    await patch(server, {"status": {"phase": "Running"}}, "status")
    await patch(server, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
    await patch(server, {"metadata": {"generation": 7, "finalizers": ["example.org/x"]}})
    assert await generation(server) == 1


async def test_a_changed_spec_is_a_new_generation(server: Running) -> None:
    await bind(server)
    image = {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}
    assert (await patch(server, image, media=STRATEGIC)).json["metadata"]["generation"] == 2
    assert (await patch(server, image, media=STRATEGIC)).json["metadata"]["generation"] == 2
    debug = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i:1"}]}}
    await patch(server, debug, "ephemeralcontainers", STRATEGIC)
    assert await generation(server) == 3


@pytest.mark.parametrize("way", ["delete", "evict"])
async def test_the_beginning_of_an_end_is_one_new_generation(server: Running, way: str) -> None:
    await bind(server)
    if way == "delete":
        assert (await server.ask("DELETE", POD)).status == 200
    else:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        assert (await server.ask("POST", f"{POD}/eviction", eviction)).status == 201
    assert await generation(server) == 2
    assert (await server.ask("DELETE", f"{POD}?gracePeriodSeconds=5")).status == 200
    assert await generation(server) == 2


@pytest.mark.parametrize(
    ("path", "api_version", "kind", "body"),
    [
        ("/api/v1/nodes", "v1", "Node", {"spec": {"unschedulable": True}}),
        (f"{CORE}/services", "v1", "Service", {"spec": {"ports": [{"port": 80}]}}),
        (f"{CORE}/configmaps", "v1", "ConfigMap", {"data": {"a": "b"}}),
        ("/apis/node.k8s.io/v1/runtimeclasses", "node.k8s.io/v1", "RuntimeClass",
         {"handler": "x"}),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "coordination.k8s.io/v1",
         "Lease", {"spec": {"holderIdentity": "x"}}),
    ],
)  # fmt: skip
async def test_kinds_without_generations(
    server: Running, path: str, api_version: str, kind: str, body: dict[str, Any]
) -> None:
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **body}
    created = await server.ask("POST", path, obj)
    assert created.status == 201, created.text
    assert "generation" not in created.json["metadata"]
