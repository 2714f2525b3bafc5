"""Large requests: answered in time that grows with their size, without delaying others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.running_server import Running, serving

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MAPS = "/api/v1/namespaces/default/configmaps"
MANY = 20_000
STRATEGIC = "application/strategic-merge-patch+json"

# Quadratic work on these takes more than a minute; a deadline, not a measurement.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await running.ask("POST", accounts, {"metadata": {"name": "default"}})
        yield running


def _environment(prefix: str = "v", value: str = "x") -> list[dict[str, str]]:
    return [{"name": f"{prefix}{number}", "value": value} for number in range(MANY)]


def _deployment(environment: list[dict[str, str]]) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "env": environment}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "large"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        },
    }


def _change(environment: list[dict[str, Any]], **directives: Any) -> dict[str, Any]:
    container = {"name": "c", "env": environment, **directives}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


async def _patch(server: Running, path: str, patch: Any, media: str) -> Any:
    answer = await server.ask("PATCH", path, json.dumps(patch).encode(), Content_Type=media)
    assert answer.status == 200, answer.text[:300]
    return answer.json


def _names(deployment: dict[str, Any]) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [variable["name"] for variable in container.get("env", [])]


async def test_strategic_merge_of_many_entries_over_many(server: Running) -> None:
    await server.ask("POST", DEPLOYMENTS, _deployment(_environment()))
    path = f"{DEPLOYMENTS}/large"
    names = [f"v{number}" for number in range(MANY)]
    patch = _change(list(reversed(_environment(value="y"))))
    assert _names(await _patch(server, path, patch, STRATEGIC)) == names[::-1]
    order = {"$setElementOrder/env": [{"name": name} for name in names]}
    assert _names(await _patch(server, path, _change([], **order), STRATEGIC)) == names
    added = _names(await _patch(server, path, _change(_environment("w")), STRATEGIC))
    assert len(added) == 2 * MANY
    deleted = [{"name": name, "$patch": "delete"} for name in names]
    left = _names(await _patch(server, path, _change(deleted), STRATEGIC))
    assert left == [f"w{number}" for number in range(MANY)]


async def test_strategic_merge_of_many_values(server: Running) -> None:
    await server.ask("POST", MAPS, {"metadata": {"name": "m", "finalizers": ["a.b/first"]}})
    finalizers = [f"example.com/f{number}" for number in range(MANY)]
    path = f"{MAPS}/m"
    patch = {"metadata": {"finalizers": finalizers}}
    merged = (await _patch(server, path, patch, STRATEGIC))["metadata"]["finalizers"]
    assert len(merged) == MANY + 1
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers}}
    merged = (await _patch(server, path, patch, STRATEGIC))["metadata"]["finalizers"]
    assert merged == ["a.b/first"]
    patch = {"metadata": {"$retainKeys": [f"k{number}" for number in range(MANY)] + ["name"]}}
    await _patch(server, path, patch, STRATEGIC)


async def test_applying_many_entries(server: Running) -> None:
    path = f"{DEPLOYMENTS}/large?fieldManager="
    media = "application/apply-patch+yaml"
    body = json.dumps(_deployment(_environment())).encode()
    created = await server.ask("PATCH", path + "a", body, Content_Type=media)
    assert created.status == 201
    other = json.dumps(_deployment(_environment(value="y"))).encode()
    conflict = await server.ask("PATCH", path + "b", other, Content_Type=media)
    assert conflict.status == 409
    changed = await _patch(server, path + "a", _deployment(_environment("w")), media)
    assert _names(changed) == [f"w{number}" for number in range(MANY)]


async def test_ten_thousand_operations(server: Running) -> None:
    await server.ask("POST", DEPLOYMENTS, _deployment(_environment()))
    environment = "/spec/template/spec/containers/0/env"
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": f"{environment}/0", "value": {"name": f"w{number}"}}
        for number in range(5_000)
    ]
    operations += [{"op": "remove", "path": f"{environment}/0"}] * 5_000
    media = "application/json-patch+json"
    patched = await _patch(server, f"{DEPLOYMENTS}/large", operations, media)
    assert len(_names(patched)) == MANY


async def test_others_are_answered_before_a_large_request_is(server: Running) -> None:
    body = json.dumps(_deployment(_environment())).encode()
    media = "application/apply-patch+yaml"
    path = f"{DEPLOYMENTS}/large?fieldManager=a"
    large = asyncio.create_task(server.ask("PATCH", path, body, Content_Type=media))
    answered = 0
    while not large.done():
        assert (await server.ask("GET", MAPS)).status == 200
        answered += 1
    assert (await large).status == 201
    # With the work on the event loop it is one: the request that was sent first.
    assert answered > 5


async def test_yaml_answers_of_large_lists(server: Running) -> None:
    await server.ask("POST", DEPLOYMENTS, _deployment(_environment()))
    answer = await server.ask("GET", DEPLOYMENTS, Accept="application/yaml")
    assert answer.headers["Content-Type"] == "application/yaml"
    assert answer.text.count("  - name: v") == MANY


async def test_an_object_cannot_grow_without_end_by_patches(server: Running) -> None:
    await server.ask("POST", DEPLOYMENTS, _deployment([]))
    statuses = []
    for number in range(3):
        patch = _change([{"name": f"v{number}", "value": "x" * 2_000_000}])
        answer = await server.ask(
            "PATCH", f"{DEPLOYMENTS}/large", json.dumps(patch).encode(), Content_Type=STRATEGIC
        )
        statuses.append((answer.status, answer.json.get("reason")))
    assert statuses == [(200, None)] + [(413, "RequestEntityTooLarge")] * 2


async def test_an_object_too_large_with_its_managed_fields_loses_them(server: Running) -> None:
    created = await server.ask("POST", DEPLOYMENTS, _deployment(_environment()))
    assert created.json["metadata"]["managedFields"]
    patched = await _patch(server, f"{DEPLOYMENTS}/large", _change(_environment("w")), STRATEGIC)
    assert "managedFields" not in patched["metadata"]
    assert len(_names(patched)) == 2 * MANY


async def test_operations_cannot_nest_an_object_without_end(server: Running) -> None:
    """Each copies the whole into its innermost part: twenty would make a million levels."""
    await server.ask("POST", MAPS, {"metadata": {"name": "nested"}})
    operations: list[dict[str, Any]] = [{"op": "add", "path": "/made", "value": {"in": {}}}]
    innermost = "/in"
    for number in range(8):
        into = f"{innermost}/n{number}"
        operations.append({"op": "copy", "from": "/made", "path": f"/made{into}"})
        innermost = into + innermost
    answer = await server.ask(
        "PATCH",
        f"{MAPS}/nested",
        json.dumps(operations).encode(),
        Content_Type="application/json-patch+json",
    )
    assert answer.status == 400
    assert answer.json["message"].startswith("the patched object cannot be taken: ")
