"""The disruption loops: what budgets permit, and announced disruptions that did not happen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import ConflictError, NotFoundError
from moorage.controllers.disruption import DisruptionController, stale_disruptions
from moorage.controllers.objects import PODS
from moorage.wire.client.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from tests.controllers.memory import MemoryClient, World

LABELS = {"app": "web"}
SELECTOR = {"matchLabels": LABELS}


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    disruption = DisruptionController(world.client, world.informers, world.recorder, world.clock)
    stale = stale_disruptions(world.client, world.informers, world.clock)
    async with world.running(disruption.run(), stale.run()) as client:
        yield client


def budget(name: str = "b", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"selector": SELECTOR, **spec},
    }


def owned_by(kind: str, name: str, api_version: str = "apps/v1") -> list[dict[str, Any]]:
    return [
        {"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": True}
    ]


def pod(name: str, *, ready: bool = True, owner: Any = None, **meta: Any) -> dict[str, Any]:
    status = "True" if ready else "False"
    return {
        "metadata": {"name": name, "namespace": "default", "labels": LABELS,
                     "ownerReferences": owner or [], **meta},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
    }  # fmt: skip


def workload(name: str, replicas: int | None, owner: Any = None) -> dict[str, Any]:
    spec = {} if replicas is None else {"replicas": replicas}
    return {
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owner or []},
        "spec": spec,
    }


def status(client: MemoryClient, name: str = "b") -> dict[str, Any]:
    wire = client.find(POD_DISRUPTION_BUDGETS, name)
    assert wire is not None
    return dict(wire.get("status", {}))


def counts(client: MemoryClient, name: str = "b") -> tuple[int, int, int, int]:
    """Allowed, healthy, desired, expected."""
    own = status(client, name)
    allowed, healthy = own.get("disruptionsAllowed", 0), own.get("currentHealthy", 0)
    return allowed, healthy, own.get("desiredHealthy", 0), own.get("expectedPods", 0)


def condition(client: MemoryClient) -> tuple[str, str, str]:
    (only,) = status(client)["conditions"]
    assert only["type"] == "DisruptionAllowed"
    return only["status"], only["reason"], only.get("message", "")


@pytest.mark.parametrize(
    ("spec", "ready", "expected"),
    [
        ({"minAvailable": 2}, 3, (1, 3, 2, 3)),
        ({"minAvailable": 3}, 3, (0, 3, 3, 3)),
        ({"minAvailable": 0}, 0, (0, 0, 0, 3)),
        ({"minAvailable": "50%"}, 3, (1, 3, 2, 3)),
        ({"maxUnavailable": 1}, 3, (1, 3, 2, 3)),
        ({"maxUnavailable": 1}, 2, (0, 2, 2, 3)),
        ({"maxUnavailable": "30%"}, 3, (1, 3, 2, 3)),
        ({"maxUnavailable": 9}, 3, (3, 3, 0, 3)),
        ({}, 3, (0, 3, 0, 0)),
    ],
)
async def test_counts(
    world: World, spec: dict[str, Any], ready: int, expected: tuple[int, int, int, int]
) -> None:
    world.client.put(STATEFUL_SETS, workload("s", 3))
    for number in range(3):
        owner = owned_by("StatefulSet", "s")
        world.client.put(PODS, pod(f"p{number}", ready=number < ready, owner=owner))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(**spec))
    async with reconciling(world) as client:
        assert counts(client) == expected
        assert status(client)["observedGeneration"] == 1
        allowed = ("True", "SufficientPods", "") if expected[0] else (
            "False", "InsufficientPods", ""
        )  # fmt: skip
        assert condition(client) == allowed
        # Nothing is written twice.
        client.requests.clear()
        client.put(POD_DISRUPTION_BUDGETS, client.find(POD_DISRUPTION_BUDGETS, "b") or {})
        await world.settled(1)
        assert client.writes == []


async def test_the_expected_pods_of_controllers(world: World) -> None:
    world.client.put(DEPLOYMENTS, workload("d", 5))
    world.client.put(REPLICA_SETS, workload("r1", 2, owned_by("Deployment", "d")))
    world.client.put(REPLICA_SETS, workload("r2", 3, owned_by("Deployment", "d")))
    world.client.put(REPLICA_SETS, workload("alone", None))
    for number, replica_set in enumerate(("r1", "r2", "alone", "alone")):
        owner = owned_by("ReplicaSet", replica_set)
        world.client.put(PODS, pod(f"p{number}", owner=owner))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=2))
    async with reconciling(world) as client:
        # Five of the Deployment, and one of the ReplicaSet that states no number.
        assert counts(client) == (0, 4, 4, 6)


SCALE = "/apis/x.io/v1/namespaces/default/widgets/w/scale"


def _discovered(*names: str) -> bytes:
    entries = [
        {"name": name, "kind": "Widget" if "/" not in name else "Scale", "namespaced": True}
        for name in names
    ]
    return json.dumps({"resources": entries}).encode()


def _scale(replicas: int, uid: str = "w") -> bytes:
    return json.dumps({"metadata": {"uid": uid}, "spec": {"replicas": replicas}}).encode()


@pytest.mark.parametrize(
    ("answers", "expected", "why"),
    [
        ({"/apis/x.io/v1": _discovered("widgets", "widgets/scale"), SCALE: _scale(4)},
         (0, 1, 3, 4), None),
        ({"/apis/x.io/v1": _discovered("widgets")}, (0, 0, 0, 0),
         "widgets.x.io does not implement the scale subresource"),
        ({"/apis/x.io/v1": _discovered("widgets", "widgets/scale"),
          SCALE: NotFoundError("none")}, (0, 0, 0, 0), 'found no controllers for pod "p"'),
        ({"/apis/x.io/v1": _discovered("widgets", "widgets/scale"), SCALE: _scale(4, "old")},
         (0, 0, 0, 0), 'found no controllers for pod "p"'),
        ({"/apis/x.io/v1": NotFoundError("none")}, (0, 0, 0, 0),
         'no matches for kind "Widget" in version "x.io/v1"'),
    ],
)  # fmt: skip
async def test_controllers_of_other_kinds_are_asked_for_their_scale(
    world: World, answers: dict[str, Any], expected: tuple[int, ...], why: str | None
) -> None:
    for path, answer in answers.items():
        world.client.answers["GET", path] = answer
    world.client.put(PODS, pod("p", owner=owned_by("Widget", "w", "x.io/v1")))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=1))
    async with reconciling(world) as client:
        await world.settled(1)
        assert counts(client) == expected
        if why is None:
            return
        assert condition(client) == ("False", "SyncFailed", why)
        message = f"Failed to calculate the number of expected pods: {why}"
        assert ("b", "Warning", "CalculateExpectedPodCountFailed", message) in client.events


async def test_a_group_that_is_a_path_is_not_asked_for(world: World) -> None:
    world.client.put(PODS, pod("p", owner=owned_by("Widget", "w", "../../api/v1")))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=1))
    async with reconciling(world) as client:
        assert condition(client)[1] == "SyncFailed"
        assert client.asked("request") == []


async def test_a_failure_permits_nothing_until_it_is_over(world: World) -> None:
    world.client.put(PODS, pod("p", owner=owned_by("StatefulSet", "s")))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=1))
    async with reconciling(world) as client:
        assert condition(client) == ("False", "SyncFailed", 'found no controllers for pod "p"')
        client.put(STATEFUL_SETS, workload("s", 1))
        client.put(PODS, pod("p", owner=owned_by("StatefulSet", "s"), annotations={"a": "b"}))
        await world.settled()
        assert counts(client) == (1, 1, 0, 1)
        assert condition(client) == ("True", "SufficientPods", "")


async def test_pods_without_a_controller_are_reported(world: World) -> None:
    world.client.put(PODS, pod("p"))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(minAvailable="50%"))
    async with reconciling(world) as client:
        await world.settled(1)
        assert counts(client) == (0, 1, 0, 0)
        (event,) = client.events
        assert event[:3] == ("b", "Warning", "UnmanagedPods")
        assert event[3].startswith(
            'Pods selected by this PodDisruptionBudget (selector: {"matchLabels":{"app":"web"}}) '
        )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [(None, (0, 0, 1, 0)), ({"matchLabels": {"app": "db"}}, (0, 0, 1, 0)), ({}, (0, 1, 1, 1))],
)
async def test_what_selectors_select(
    world: World, selector: Any, expected: tuple[int, ...]
) -> None:
    world.client.put(PODS, pod("p"))
    made = budget(minAvailable=1, selector=selector)
    if selector is None:
        del made["spec"]["selector"]
    world.client.put(POD_DISRUPTION_BUDGETS, made)
    async with reconciling(world) as client:
        await world.settled(1)
        assert counts(client) == expected
        has_none = ("b", "Normal", "NoPods", "No matching pods found") in client.events
        assert has_none is (expected[3] == 0)


async def test_pods_that_come_and_go_change_the_budgets_that_select_them(world: World) -> None:
    world.client.put(POD_DISRUPTION_BUDGETS, budget(minAvailable=1))
    other = budget("other", minAvailable=0, selector={"matchLabels": {"app": "db"}})
    world.client.put(POD_DISRUPTION_BUDGETS, other)
    async with reconciling(world) as client:
        client.put(PODS, pod("p"))
        client.put(PODS, pod("q", ready=False))
        await world.settled()
        assert counts(client) == (0, 1, 1, 2)
        client.put(PODS, pod("q"))
        await world.settled()
        assert counts(client) == (1, 2, 1, 2)
        moved = pod("q")
        moved["metadata"]["labels"] = {"app": "db"}
        client.put(PODS, moved)
        await world.settled()
        assert (counts(client), counts(client, "other")) == ((0, 1, 1, 1), (1, 1, 0, 1))
        client.drop(PODS, "q")
        await world.settled()
        assert counts(client, "other") == (0, 0, 0, 0)


async def test_a_pod_of_several_budgets_is_reported_and_counted_in_each(world: World) -> None:
    world.client.put(POD_DISRUPTION_BUDGETS, budget("b", minAvailable=0))
    world.client.put(POD_DISRUPTION_BUDGETS, budget("c", minAvailable=1))
    async with reconciling(world) as client:
        client.put(PODS, pod("p"))
        await world.settled(1)
        assert (counts(client, "b"), counts(client, "c")) == ((1, 1, 0, 1), (0, 1, 1, 1))
        message = (
            'Pod "default"/"p" matches multiple PodDisruptionBudgets: b, c. Its eviction is '
            "refused."
        )
        assert ("p", "Warning", "MultiplePodDisruptionBudgets", message) in client.events


async def test_evicted_pods_do_not_count_until_their_deletion_is_overdue(world: World) -> None:
    now = format_time(world.clock.now())
    made = {**budget(minAvailable=1), "status": {
        "disruptedPods": {"p": now, "gone": now, "leaving": now}, "disruptionsAllowed": 5,
    }}  # fmt: skip
    world.client.put(POD_DISRUPTION_BUDGETS, made)
    for name in ("p", "q"):
        world.client.put(PODS, pod(name))
    world.client.put(PODS, pod("leaving", deletionTimestamp=now))
    async with reconciling(world) as client:
        assert counts(client) == (0, 1, 1, 3)
        assert status(client)["disruptedPods"] == {"p": now}
        await world.settled(121)
        assert counts(client) == (1, 2, 1, 3)
        assert "disruptedPods" not in status(client) or status(client)["disruptedPods"] == {}
        await world.settled(1)
        message = "Pod was expected by PDB default/b to be deleted but it wasn't"
        assert ("p", "Warning", "NotDeleted", message) in client.events


@pytest.mark.failing_reconciles
async def test_a_conflict_is_tried_again(world: World) -> None:
    world.client.put(PODS, pod("p"))
    world.client.put(POD_DISRUPTION_BUDGETS, budget(minAvailable=0))
    failure = ConflictError("changed")
    world.client.failures.append(("patch", POD_DISRUPTION_BUDGETS.plural, failure))
    async with reconciling(world) as client:
        await world.settled(1)
        assert counts(client) == (1, 1, 0, 1)
        assert condition(client)[1] == "SufficientPods"


async def test_a_budget_that_goes_meanwhile_is_no_failure(world: World) -> None:
    world.client.put(POD_DISRUPTION_BUDGETS, budget(minAvailable=0))
    failure = NotFoundError("gone")
    world.client.failures.append(("patch", POD_DISRUPTION_BUDGETS.plural, failure))
    async with reconciling(world) as client:
        await world.settled(1)
        assert status(client) == {}


def _announced(world: World, age_s: float, **fields: Any) -> dict[str, Any]:
    since = format_time(world.clock.now() - timedelta(seconds=age_s))
    wire = pod("p", generation=3)
    wire["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
         "message": "m", "lastTransitionTime": since, **fields}
    )  # fmt: skip
    return wire


def _target(client: MemoryClient) -> dict[str, Any]:
    wire = client.find(PODS, "p")
    assert wire is not None
    return dict(wire["status"]["conditions"][-1])


async def test_a_disruption_that_did_not_happen_is_taken_back(world: World) -> None:
    world.client.put(PODS, _announced(world, 30))
    async with reconciling(world) as client:
        await world.settled(89)
        assert _target(client)["status"] == "True"
        await world.settled(2)
        assert _target(client) == {
            "type": "DisruptionTarget", "status": "False", "observedGeneration": 3,
            "lastTransitionTime": format_time(world.clock.now()),
        }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"phase": "Failed"}},
        {"condition": {"status": "False"}},
        {"condition": {"reason": "TerminationByKubelet"}},
    ],
)
async def test_conditions_that_stay(world: World, change: dict[str, Any]) -> None:
    wire = _announced(world, 30, **change.get("condition", {}))
    wire["metadata"] |= change.get("metadata", {})
    wire["status"] |= change.get("status", {})
    world.client.put(PODS, wire)
    async with reconciling(world) as client:
        await world.settled(300)
        assert client.asked("patch", PODS) == []
