"""`pods/resize` through the API: the three verbs, generation, quotas, limit ranges, capacity."""

from __future__ import annotations

import json
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
        account = {"metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "4Gi"}}}
        assert (await running.ask("POST", "/api/v1/nodes", node)).status == 201
        yield running


async def add_pod(server: Running, **requests: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container], "nodeName": "n"}}
    answer = await server.ask("POST", f"{CORE}/pods", body)
    assert answer.status == 201, answer.text


async def resize(server: Running, query: str = "", **requests: str) -> Answer:
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    return await server.ask("PATCH", f"{POD}/resize{query}", body, Content_Type=STRATEGIC)


def requests_of(answer: Answer) -> Any:
    return answer.json["spec"]["containers"][0]["resources"]["requests"]


async def test_a_patch_changes_the_resources_and_the_generation(server: Running) -> None:
    await add_pod(server, cpu="1")
    answer = await resize(server, cpu="2")
    assert (answer.status, requests_of(answer)) == (200, {"cpu": "2"})
    pod = (await server.ask("GET", POD)).json
    assert pod["metadata"]["generation"] == 2
    assert (await server.ask("GET", f"{POD}/resize")).json == pod
    again = await resize(server, cpu="2000m")
    assert again.json["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_a_replacement_changes_nothing_but_resources(server: Running) -> None:
    await add_pod(server, cpu="1")
    pod = (await server.ask("GET", POD)).json
    pod["spec"]["containers"][0] |= {"image": "other", "resources": {"requests": {"cpu": "3"}}}
    pod["metadata"]["labels"] = {"a": "b"}
    pod["status"] = {"phase": "Failed"}
    answer = await server.ask("PUT", f"{POD}/resize", pod)
    assert (answer.status, requests_of(answer)) == (200, {"cpu": "3"})
    stored = (await server.ask("GET", POD)).json
    assert stored["spec"]["containers"][0]["image"] == "i"
    assert "labels" not in stored["metadata"]
    assert stored["status"]["phase"] == "Pending"


async def test_the_pod_itself_keeps_its_resources(server: Running) -> None:
    await add_pod(server, cpu="1")
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    answer = await server.ask("PATCH", POD, body, Content_Type=STRATEGIC)
    assert answer.status == 422
    assert "pod updates may not change fields other than" in answer.json["message"]


async def test_more_than_the_node_has_is_refused(server: Running) -> None:
    await add_pod(server, cpu="1")
    refused = await resize(server, cpu="5")
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"].endswith(
        "node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000"
    )
    assert refused.json["details"]["causes"] == [{"reason": "NodeCapacity"}]


async def test_a_quota_is_charged_for_the_difference(server: Running) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "3"}}}
    assert (await server.ask("POST", f"{CORE}/resourcequotas", quota)).status == 201
    status = {"status": {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "0"}}}
    path = f"{CORE}/resourcequotas/q"
    answer = await server.ask("PATCH", f"{path}/status", status, Content_Type=MERGE)
    assert answer.status == 200
    await add_pod(server, cpu="1")
    assert (await resize(server, "?dryRun=All", cpu="2")).status == 200
    assert (await server.ask("GET", path)).json["status"]["used"] == {"requests.cpu": "1"}
    assert (await resize(server, cpu="2")).status == 200
    assert (await server.ask("GET", path)).json["status"]["used"] == {"requests.cpu": "2"}
    refused = await resize(server, cpu="3500m")
    assert refused.json["message"] == (
        'pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: '
        "requests.cpu=2, limited: requests.cpu=3"
    )


async def test_a_limit_range_bounds_a_resize(server: Running) -> None:
    await add_pod(server, memory="1Gi")
    limits = [{"type": "Container", "min": {"memory": "512Mi"}}]
    body = {"metadata": {"name": "l"}, "spec": {"limits": limits}}
    assert (await server.ask("POST", f"{CORE}/limitranges", body)).status == 201
    assert (await resize(server, memory="768Mi")).status == 200
    refused = await resize(server, memory="256Mi")
    assert refused.status == 403
    assert refused.json["message"].endswith(
        "minimum memory usage per Container is 512Mi, but request is 256Mi"
    )


async def test_discovery_shows_the_subresource(server: Running) -> None:
    resources = (await server.ask("GET", "/api/v1")).json["resources"]
    (shown,) = [resource for resource in resources if resource["name"] == "pods/resize"]
    assert shown == {"name": "pods/resize", "singularName": "", "namespaced": True, "kind": "Pod",
                     "verbs": ["get", "patch", "update"]}  # fmt: skip
    paths = (await server.ask("GET", "/openapi/v3/api/v1")).json["paths"]
    assert sorted(paths["/api/v1/namespaces/{namespace}/pods/{name}/resize"].keys() - {
        "parameters"}) == ["get", "patch", "put"]  # fmt: skip


async def test_managed_fields_are_in_upstreams_order(server: Running) -> None:
    """Clients that decode into sorted maps compare what they encode with the bytes of others."""
    await add_pod(server, memory="1Gi", cpu="1")
    assert (await resize(server, cpu="2", memory="2Gi")).status == 200
    entries = (await server.ask("GET", POD)).json["metadata"]["managedFields"]
    assert [entry.get("subresource") for entry in entries] == [None, "resize"]
    for entry in entries:
        fields = entry["fieldsV1"]
        assert json.dumps(fields) == json.dumps(fields, sort_keys=True)
