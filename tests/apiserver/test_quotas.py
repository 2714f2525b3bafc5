"""ResourceQuotas and LimitRanges through the API, with statuses as the controller writes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.admission.configuration import AdmissionOptions
from moorage.apiserver.admission.resource_quota import parse_limited_resources
from tests.apiserver.running_server import Answer, Running, serving

CORE = "/api/v1/namespaces/default"
QUOTAS = f"{CORE}/resourcequotas"
PODS = f"{CORE}/pods"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        account = {"metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        yield running


async def add_quota(
    server: Running, hard: dict[str, str], name: str = "q", *, used: Any = None, **spec: Any
) -> None:
    body = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    assert (await server.ask("POST", QUOTAS, body)).status == 201
    status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
    answer = await server.ask(
        "PATCH", f"{QUOTAS}/{name}/status", {"status": status}, Content_Type=MERGE
    )
    assert answer.status == 200, answer.text


async def used(server: Running, name: str = "q") -> Any:
    return (await server.ask("GET", f"{QUOTAS}/{name}")).json["status"]["used"]


async def add_pod(server: Running, name: str = "p", query: str = "", **more: Any) -> Answer:
    resources = {"requests": more.pop("requests", {}), "limits": more.pop("limits", {})}
    container = {"name": "c", "image": "i", "resources": resources}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], **more}}
    return await server.ask("POST", PODS + query, body)


async def test_pods_are_charged_until_the_quota_is_used_up(server: Running) -> None:
    await add_quota(server, {"pods": "2", "requests.cpu": "3"})
    assert (await add_pod(server, "a", requests={"cpu": "1"})).status == 201
    assert await used(server) == {"pods": "1", "requests.cpu": "1"}
    refused = await add_pod(server, "b", requests={"cpu": "2500m"})
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=2500m, used: '
        "requests.cpu=1, limited: requests.cpu=3"
    )
    assert (await add_pod(server, "c", requests={"cpu": "2"})).status == 201
    refused = await add_pod(server, "d", requests={"cpu": "1"})
    assert refused.json["message"].endswith(
        "exceeded quota: q, requested: pods=1,requests.cpu=1, used: pods=2,requests.cpu=3, "
        "limited: pods=2,requests.cpu=3"
    )
    assert await used(server) == {"pods": "2", "requests.cpu": "3"}


async def test_the_overhead_of_a_class_is_charged(server: Running) -> None:
    overhead = {"podFixed": {"cpu": "1"}}
    body = {"metadata": {"name": "vm"}, "handler": "vm", "overhead": overhead}
    assert (await server.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)).status == 201
    await add_quota(server, {"cpu": "2"})
    assert (await add_pod(server, "a", requests={"cpu": "1"}, runtimeClassName="vm")).status == 201
    assert await used(server) == {"cpu": "2"}
    refused = await add_pod(server, "b", requests={"cpu": "1m"}, runtimeClassName="vm")
    assert "exceeded quota: q, requested: cpu=1001m, used: cpu=2" in refused.json["message"]


async def test_what_a_quota_limits_must_be_stated_or_have_a_default(server: Running) -> None:
    await add_quota(server, {"limits.memory": "4Gi"})
    refused = await add_pod(server)
    assert refused.json["message"] == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: c'
    )
    limits = [{"type": "Container", "default": {"memory": "1Gi"}, "max": {"memory": "2Gi"}}]
    limit_range = {"metadata": {"name": "l"}, "spec": {"limits": limits}}
    assert (await server.ask("POST", f"{CORE}/limitranges", limit_range)).status == 201
    made = await add_pod(server)
    assert made.status == 201
    assert made.json["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: memory request for container c; memory limit for container c"
        )
    }
    assert await used(server) == {"limits.memory": "1Gi"}
    refused = await add_pod(server, "big", limits={"memory": "3Gi"})
    assert refused.json["message"] == (
        'pods "big" is forbidden: maximum memory usage per Container is 2Gi, but limit is 3Gi'
    )


async def test_a_quota_whose_use_is_unknown_refuses(server: Running) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "cpu": "1"}}}
    assert (await server.ask("POST", QUOTAS, body)).status == 201
    # Until the controller has seen it, it limits nothing.
    assert (await add_pod(server, "a")).status == 201
    status = {"status": {"hard": {"pods": "1", "cpu": "1"}, "used": {"pods": "0"}}}
    await server.ask("PATCH", f"{QUOTAS}/q/status", status, Content_Type=MERGE)
    refused = await add_pod(server, "b", requests={"cpu": "1"})
    assert refused.json["message"] == (
        'pods "b" is forbidden: status unknown for quota: q, resources: cpu,pods'
    )


async def test_scopes_choose_the_pods(server: Running) -> None:
    await add_quota(server, {"pods": "1"}, "short", scopes=["Terminating"])
    await add_quota(server, {"pods": "1"}, "best-effort", scopes=["BestEffort"])
    assert (await add_pod(server, "a", requests={"cpu": "1"})).status == 201
    assert (await used(server, "short"), await used(server, "best-effort")) == (
        {"pods": "0"}, {"pods": "0"}
    )  # fmt: skip
    assert (await add_pod(server, "b", activeDeadlineSeconds=5)).status == 201
    assert (await used(server, "short"), await used(server, "best-effort")) == (
        {"pods": "1"}, {"pods": "1"}
    )  # fmt: skip
    refused = await add_pod(server, "c")
    assert "exceeded quota: best-effort" in refused.json["message"]
    # A deadline moves a pod into the scope, which is full.
    body = {"spec": {"activeDeadlineSeconds": 5}}
    refused = await server.ask("PATCH", f"{PODS}/a", body, Content_Type=MERGE)
    assert "exceeded quota: short" in refused.json["message"]


async def test_objects_of_any_kind_are_counted(server: Running) -> None:
    await add_quota(server, {"secrets": "1", "count/configmaps": "1", "resourcequotas": "2"})
    for plural in ("secrets", "configmaps"):
        assert (
            await server.ask("POST", f"{CORE}/{plural}", {"metadata": {"name": "a"}})
        ).status == 201
        refused = await server.ask("POST", f"{CORE}/{plural}", {"metadata": {"name": "b"}})
        assert refused.status == 403, plural
        # An update uses no more.
        change = {"metadata": {"labels": {"a": "b"}}}
        path = f"{CORE}/{plural}/a"
        assert (await server.ask("PATCH", path, change, Content_Type=MERGE)).status == 200
    assert await used(server) == {
        "secrets": "1", "count/configmaps": "1", "resourcequotas": "0"
    }  # fmt: skip
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
    await add_quota(server, {"count/events": "0"}, "events")
    assert (await server.ask("POST", f"{CORE}/events", event)).status == 201


async def test_an_update_is_charged_for_the_increase(server: Running) -> None:
    await add_quota(server, {"services": "1", "services.nodeports": "1"})
    services = f"{CORE}/services"
    spec = {"type": "NodePort", "ports": [{"name": "a", "port": 80}]}
    assert (
        await server.ask("POST", services, {"metadata": {"name": "s"}, "spec": spec})
    ).status == 201
    assert await used(server) == {"services": "1", "services.nodeports": "1"}
    more = {"spec": {"ports": [*spec["ports"], {"name": "b", "port": 81}]}}
    refused = await server.ask("PATCH", f"{services}/s", more, Content_Type=MERGE)
    assert refused.json["message"].endswith(
        "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: "
        "services.nodeports=1"
    )
    less = {"spec": {"type": "ClusterIP"}}
    assert (await server.ask("PATCH", f"{services}/s", less, Content_Type=MERGE)).status == 200
    assert await used(server) == {"services": "1", "services.nodeports": "1"}


async def test_a_dry_run_is_checked_and_not_charged(server: Running) -> None:
    await add_quota(server, {"pods": "1"})
    assert (await add_pod(server, query="?dryRun=All")).status == 201
    assert await used(server) == {"pods": "0"}
    assert (await add_pod(server, "a")).status == 201
    assert (await add_pod(server, "b", query="?dryRun=All")).status == 403


async def test_writes_at_once_use_no_more_than_there_is(server: Running) -> None:
    await add_quota(server, {"pods": "5"})
    await add_quota(server, {"count/pods": "7"}, "other")
    answers = await asyncio.gather(*(add_pod(server, f"p{number}") for number in range(20)))
    assert sorted(answer.status for answer in answers) == [201] * 5 + [403] * 15
    assert (await used(server), await used(server, "other")) == (
        {"pods": "5"}, {"count/pods": "5"}
    )  # fmt: skip


async def test_a_quota_that_changes_meanwhile_is_charged_as_it_is(server: Running) -> None:
    await add_quota(server, {"pods": "100"})
    change = {"metadata": {"labels": {"n": "0"}}}

    async def relabel(number: int) -> None:
        change["metadata"]["labels"]["n"] = str(number)
        answer = await server.ask("PATCH", f"{QUOTAS}/q", change, Content_Type=MERGE)
        assert answer.status == 200, answer.text

    results = await asyncio.gather(
        *(add_pod(server, f"p{number}") for number in range(10)),
        *(relabel(number) for number in range(10)),
    )
    assert {answer.status for answer in results[:10] if answer is not None} == {201}
    assert await used(server) == {"pods": "10"}


async def test_other_namespaces_are_free(server: Running) -> None:
    await add_quota(server, {"count/configmaps": "0"})
    other = "/api/v1/namespaces/kube-public/configmaps"
    assert (await server.ask("POST", other, {"metadata": {"name": "m"}})).status == 201
    node = {"metadata": {"name": "n"}}
    assert (await server.ask("POST", "/api/v1/nodes", node)).status == 201


LIMITED = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "ResourceQuotaConfiguration",
    "limitedResources": [
        {
            "resource": "pods",
            "matchContains": ["cpu"],
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}],
        },
        {"apiGroup": "", "resource": "configmaps", "matchContains": ["count/"]},
    ],
}


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Running]:
    options = AdmissionOptions(limited_resources=parse_limited_resources(LIMITED))
    async with serving(tmp_path, admission=options) as running:
        account = {"metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        high = {"metadata": {"name": "high"}, "value": 1000}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        assert (await running.ask("POST", path, high)).status == 201
        yield running


async def test_limited_amounts_need_a_quota_that_covers_them(limited: Running) -> None:
    assert (await add_pod(limited, "a")).status == 201
    refused = await add_pod(limited, "b", requests={"cpu": "1"})
    assert (refused.status, refused.json["message"]) == (
        403,
        'pods "b" is forbidden: insufficient quota to consume: cpu,requests.cpu',
    )
    await add_quota(limited, {"cpu": "4"}, "first")
    refused = await add_pod(limited, "b", requests={"cpu": "1"})
    assert refused.json["message"].endswith("insufficient quota to consume: requests.cpu")
    await add_quota(limited, {"requests.cpu": "4"}, "second")
    assert (await add_pod(limited, "b", requests={"cpu": "1"})).status == 201
    config_map = {"metadata": {"name": "c"}}
    refused = await limited.ask("POST", f"{CORE}/configmaps", config_map)
    assert refused.json["message"].endswith("insufficient quota to consume: count/configmaps")
    await add_quota(limited, {"count/configmaps": "1"}, "third")
    assert (await limited.ask("POST", f"{CORE}/configmaps", config_map)).status == 201


async def test_limited_scopes_need_a_quota_of_the_scope(limited: Running) -> None:
    refused = await add_pod(limited, priorityClassName="high")
    assert (refused.status, refused.json.get("reason")) == (500, None)
    assert refused.json["message"] == (
        "insufficient quota to match these scopes: [{PriorityClass In [high]}]"
    )
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    await add_quota(limited, {"pods": "1"}, scopeSelector={"matchExpressions": [scope]})
    assert (await add_pod(limited, priorityClassName="high")).status == 201
    refused = await add_pod(limited, "second", priorityClassName="high")
    assert "exceeded quota" in refused.json["message"]
