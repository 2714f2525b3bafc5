"""Evicting a pod, within its disruption budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.endpoints.subresources.pods import CORE, MERGE, POD, add_pod, stored
from tests.apiserver.running_server import Answer, Running, serving

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
READY = [{"type": "Ready", "status": "True"}]
RUNNING = {"phase": "Running", "conditions": READY}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        yield running


async def evict(server: Running, name: str = "p", **options: Any) -> Answer:
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
    }  # fmt: skip
    if options:
        eviction["deleteOptions"] = options
    return await server.ask("POST", f"{POD}/eviction", eviction)


async def test_an_eviction_says_why_and_deletes_gracefully(server: Running) -> None:
    await add_pod(server, {"phase": "Running"}, nodeName="n1")
    assert (await evict(server, gracePeriodSeconds=7)).status == 201
    pod = await stored(server)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    (condition,) = pod["status"]["conditions"]
    condition.pop("lastTransitionTime")
    assert condition == {
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }  # fmt: skip
    # A second one does not write the status again.
    revision = pod["metadata"]["resourceVersion"]
    assert (await evict(server)).status == 201
    assert (await stored(server))["metadata"]["resourceVersion"] == revision


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_is_over_is_only_deleted(server: Running, phase: str) -> None:
    await add_pod(server, {"phase": phase}, nodeName="n1")
    finalizers = {"metadata": {"finalizers": ["example.com/keep"]}}
    assert (await server.ask("PATCH", POD, finalizers, Content_Type=MERGE)).status == 200
    assert (await evict(server)).status == 201
    pod = await stored(server)
    assert "deletionTimestamp" in pod["metadata"]
    assert "conditions" not in pod["status"]


async def test_an_eviction_of_another_name_is_a_bad_request(server: Running) -> None:
    await add_pod(server)
    answer = await evict(server, name="q")
    assert answer.status == 400
    assert answer.json["message"] == "name in URL does not match name in Eviction object"
    assert (await server.ask("GET", POD)).status == 200


async def add_budget(
    server: Running, name: str = "b", *, selector: Any = None, policy: str = "", **status: Any
) -> None:
    """A budget that selects the pod, with a status as its controller would write it."""
    spec: dict[str, Any] = {
        "minAvailable": 1,
        "selector": selector or {"matchLabels": {"kept": "1"}},
    }
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    made = await server.ask("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
    assert made.status == 201, made.text
    body = {"status": {"observedGeneration": 1, "expectedPods": 1, **status}}
    patched = await server.ask("PATCH", f"{BUDGETS}/{name}/status", body, Content_Type=MERGE)
    assert patched.status == 200, patched.text


async def budget_status(server: Running, name: str = "b") -> Any:
    return (await server.ask("GET", f"{BUDGETS}/{name}")).json["status"]


async def is_deleted(server: Running) -> bool:
    return "deletionTimestamp" in (await stored(server))["metadata"]


async def test_an_eviction_uses_a_disruption(server: Running) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    await add_budget(server, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    assert (await evict(server)).status == 201
    assert await is_deleted(server)
    status = await budget_status(server)
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]
    (condition,) = status["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
        "observedGeneration": 1, "message": "",
    }  # fmt: skip


async def test_a_disruption_that_is_not_the_last_leaves_the_condition(server: Running) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    await add_budget(server, disruptionsAllowed=2, disruptedPods={"q": "2026-01-01T00:00:00Z"})
    assert (await evict(server)).status == 201
    status = await budget_status(server)
    assert status["disruptionsAllowed"] == 1
    assert sorted(status["disruptedPods"]) == ["p", "q"]
    assert "conditions" not in status


async def test_a_dry_run_counts_nothing(server: Running) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    await add_budget(server, disruptionsAllowed=1)
    before = await stored(server)
    assert (await evict(server, dryRun=["All"])).status == 201
    assert await stored(server) == before
    assert (await budget_status(server))["disruptionsAllowed"] == 1
    await add_budget(server, "other", selector={"matchLabels": {"kept": "2"}})
    await server.ask("PATCH", f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 0}},
                     Content_Type=MERGE)  # fmt: skip
    assert (await evict(server, dryRun=["All"])).status == 429


_SYNC = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
         "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "retry_s", "cause"),
    [
        ({"currentHealthy": 1, "desiredHealthy": 1}, None,
         "The disruption budget b needs 1 healthy pods and has 1 currently"),
        ({"currentHealthy": 2, "desiredHealthy": 1}, None,
         "The disruption budget b does not allow evicting pods currently"),
        ({"conditions": [_SYNC]}, None,
         "The disruption budget b does not allow evicting pods currently because it failed sync: "
         "why"),
        ({"conditions": [{**_SYNC, "reason": "Other"}], "currentHealthy": 1}, None,
         "The disruption budget b does not allow evicting pods currently (Other): why"),
        ({"observedGeneration": 0, "disruptionsAllowed": 1}, 10,
         "The disruption budget b is still being processed by the server."),
    ],
)  # fmt: skip
async def test_a_budget_that_is_used_up_refuses(
    server: Running, status: dict[str, Any], retry_s: int | None, cause: str
) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    await add_budget(server, **status)
    refused = await evict(server)
    assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")
    assert refused.json["message"] == (
        "Cannot evict pod as it would violate the pod's disruption budget."
    )
    details = refused.json["details"]
    assert details["causes"] == [{"reason": "DisruptionBudget", "message": cause}]
    assert details.get("retryAfterSeconds") == retry_s
    assert refused.headers.get("Retry-After") == (None if retry_s is None else str(retry_s))
    pod = await stored(server)
    assert "deletionTimestamp" not in pod["metadata"]
    assert pod["status"]["conditions"] == READY


async def test_too_many_evictions_without_confirmation(server: Running) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    pods = {f"p{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    await add_budget(server, disruptionsAllowed=1, disruptedPods=pods)
    refused = await evict(server)
    assert refused.status == 403
    assert refused.json["message"] == (
        'poddisruptionbudget.policy "b" is forbidden: DisruptedPods map too big - too many '
        "evictions not confirmed by PDB controller"
    )
    (cause,) = refused.json["details"]["causes"]
    assert cause["message"] == (
        "The disruption budget b does not allow evicting pods currently: too many pending "
        "evictions not confirmed by PDB controller"
    )


async def test_a_pod_with_two_budgets_is_not_evicted(server: Running) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    await add_budget(server, "b", disruptionsAllowed=1)
    await add_budget(server, "c", selector={"matchExpressions": [{"key": "both",
                     "operator": "Exists"}]}, disruptionsAllowed=1)  # fmt: skip
    refused = await evict(server)
    assert refused.status == 500
    assert refused.json["message"].startswith("This pod has more than one PodDisruptionBudget")
    assert (await budget_status(server))["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("policy", "status", "code"),
    [
        ("", {"currentHealthy": 1, "desiredHealthy": 1}, 201),
        ("IfHealthyBudget", {"currentHealthy": 1, "desiredHealthy": 1}, 201),
        ("", {"currentHealthy": 0, "desiredHealthy": 1}, 429),
        ("", {}, 429),
        ("AlwaysAllow", {"currentHealthy": 0, "desiredHealthy": 1}, 201),
    ],
)
async def test_pods_that_are_not_ready(
    server: Running, policy: str, status: dict[str, Any], code: int
) -> None:
    await add_pod(server, {"phase": "Running"}, nodeName="n1")
    await add_budget(server, policy=policy, **status)
    assert (await evict(server)).status == code
    assert await is_deleted(server) is (code == 201)
    # No disruption is counted.
    assert "disruptedPods" not in await budget_status(server)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded"])
async def test_a_pod_that_does_not_run_needs_no_budget(server: Running, phase: str) -> None:
    finalizers = {"metadata": {"finalizers": ["example.com/keep"]}}
    await add_pod(server, {"phase": phase}, nodeName="n1")
    assert (await server.ask("PATCH", POD, finalizers, Content_Type=MERGE)).status == 200
    await add_budget(server)
    assert (await evict(server)).status == 201
    assert await is_deleted(server)


async def test_preconditions_are_those_of_the_deletion(server: Running) -> None:
    await add_pod(server, {"phase": "Running"}, nodeName="n1")
    await add_budget(server, policy="AlwaysAllow")
    pod = await stored(server)
    for preconditions in ({"uid": "other"}, {"resourceVersion": "1"}):
        refused = await evict(server, preconditions=preconditions)
        assert (refused.status, refused.json["reason"]) == (409, "Conflict")
    assert await stored(server) == pod
    revision = pod["metadata"]["resourceVersion"]
    assert (await evict(server, preconditions={"resourceVersion": revision})).status == 201
    assert await is_deleted(server)


async def test_evictions_at_once_use_no_disruption_twice(server: Running) -> None:
    await add_pod(server, RUNNING, nodeName="n1")
    pod = await stored(server)
    for name in ("q", "r"):
        meta = {"name": name, "labels": pod["metadata"]["labels"]}
        body = {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}],
                                           "nodeName": "n1"}}  # fmt: skip
        assert (await server.ask("POST", f"{CORE}/pods", body)).status == 201
        status = {"status": RUNNING}
        path = f"{CORE}/pods/{name}/status"
        assert (await server.ask("PATCH", path, status, Content_Type=MERGE)).status == 200
    await add_budget(server, disruptionsAllowed=2, currentHealthy=3, desiredHealthy=1)

    async def evict_one(name: str) -> int:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return (await server.ask("POST", f"{CORE}/pods/{name}/eviction", body)).status

    codes = await asyncio.gather(*(evict_one(name) for name in ("p", "q", "r")))
    assert sorted(codes) == [201, 201, 429]


async def test_the_option_for_unreadable_objects_is_refused(server: Running) -> None:
    await add_pod(server)
    refused = await evict(server, ignoreStoreReadErrorWithClusterBreakingPotential=True)
    assert refused.status == 422
    assert refused.json["message"].endswith(
        "can not be set for pod eviction, try after removing the option"
    )
