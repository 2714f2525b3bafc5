"""`/metrics`: who may read it, which requests are counted, and under which labels."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apiserver.running_server import Running, serving

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def metrics(server: Running) -> dict[str, float]:
    answer = await server.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def total(values: dict[str, float], family: str, **labels: str) -> float:
    wanted = {f'{name}="{value}"' for name, value in labels.items()}
    return sum(
        value
        for name, value in values.items()
        if name.startswith(family + "{") and wanted <= set(re.findall(r'\w+="[^"]*"', name))
    )


async def test_only_those_who_may_get_the_path_read_it(server: Running) -> None:
    assert (await server.ask("GET", "/metrics", token="alice-token")).status == 403
    assert (await server.ask("GET", "/metrics", token="")).status == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "labels"),
    [
        ("GET", f"{MAPS}/none", 404, {"verb": "GET", "scope": "resource", "code": "404"}),
        ("GET", MAPS, 200, {"verb": "LIST", "scope": "namespace", "version": "v1"}),
        ("GET", "/api/v1/configmaps", 200, {"verb": "LIST", "scope": "cluster"}),
        ("DELETE", MAPS, 200, {"verb": "DELETE", "scope": "namespace"}),
        ("DELETE", f"{MAPS}?dryRun=All", 200, {"verb": "DELETE", "dry_run": "All"}),
        ("DELETE", f"{MAPS}?dryRun=x", 422, {"verb": "DELETE", "dry_run": "invalid"}),
        ("POST", MAPS, 415, {"verb": "POST", "scope": "resource", "code": "415"}),
    ],
)
async def test_a_request_is_counted_under_upstreams_labels(
    server: Running, method: str, path: str, status: int, labels: dict[str, str]
) -> None:
    assert (await server.ask(method, path)).status == status
    values = await metrics(server)
    labels |= {"resource": "configmaps", "component": "apiserver", "group": ""}
    assert total(values, "apiserver_request_total", **labels) == 1
    labels.pop("code", None)
    assert total(values, "apiserver_request_duration_seconds_count", **labels) == 1
    assert total(values, "apiserver_request_duration_seconds_bucket", le="60", **labels) == 1


async def test_an_apply_has_a_verb_of_its_own(server: Running) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    answer = await server.ask(
        "PATCH", f"{MAPS}/m?fieldManager=me", body, Content_Type="application/apply-patch+yaml"
    )
    assert answer.status == 201
    values = await metrics(server)
    assert total(values, "apiserver_request_total", verb="APPLY", code="201") == 1


async def test_what_clients_make_up_adds_no_series(server: Running) -> None:
    before = len(await metrics(server))
    for number in range(20):
        await server.ask("GET", f"/api/v1/namespaces/default/made-up-{number}")
        await server.ask("GET", f"/apis/made-up-{number}/v1/things")
        await server.ask("GET", f"{MAPS}/m/made-up-{number}")
        await server.ask(f"VERB{number}", MAPS)
        await server.ask("GET", f"/made-up-{number}")
        await server.ask("GET", f"/api/v1/nodes/made-up-{number}", token="")
    assert len(await metrics(server)) == before


async def test_an_open_watch_is_a_long_running_request(server: Running) -> None:
    async with server.opened(f"{MAPS}?watch=true") as stream:
        assert stream.status == 200
        values = await metrics(server)
        assert total(values, "apiserver_longrunning_requests", verb="WATCH") == 1


async def test_a_finished_watch_is_counted_by_its_status(server: Running) -> None:
    assert (await server.ask("GET", f"{MAPS}?watch=true&timeoutSeconds=1")).status == 200
    values = await metrics(server)
    assert total(values, "apiserver_longrunning_requests", verb="WATCH") == 0
    assert total(values, "apiserver_request_total", verb="WATCH", code="200") == 1


async def test_stored_objects_are_counted_by_kind(server: Running) -> None:
    values = await metrics(server)
    assert total(values, "apiserver_storage_objects", resource="namespaces") >= 4
    assert total(values, "apiserver_resource_objects", resource="namespaces", group="") >= 4
    assert values["process_resident_memory_bytes"] > 1_000_000
    assert 'apiserver_current_inflight_requests{request_kind="readOnly"}' in values
