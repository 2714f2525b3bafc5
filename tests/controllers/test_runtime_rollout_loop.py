"""The loop of rollouts against workloads in memory: requests, refusals, restarts, events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.errors import ForbiddenError, InternalError
from moorage.controllers.runtimerollouts import RuntimeRolloutController
from moorage.wire.client.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    RUNTIME_ROLLOUTS,
)
from tests.controllers.memory import Json, MemoryClient, World

_MOVED_AT = "runtime.moorage.dev/moved-at"
_MARKS = {
    "runtime.moorage.dev/rollout": "r",
    "runtime.moorage.dev/rollout-uid": "uid-r",
    "runtime.moorage.dev/moved-from": "old",
    "runtime.moorage.dev/moved-at": "2026-01-01T00:00:00Z",
    "runtime.moorage.dev/wave": "1",
}


@pytest.fixture
def world() -> World:
    world = World()
    client: MemoryClient = world.client
    client.put(NAMESPACES, {"metadata": {"name": "default", "labels": {"team": "a"}}})
    for name in ("old", "new"):
        client.put(RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": name})
    status = {"runtimeHandlers": [{"name": "old"}, {"name": "new"}]}
    client.put(NODES, {"metadata": {"name": "n"}, "status": status})
    return world


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = RuntimeRolloutController(
        world.client, world.informers, world.recorder, world.clock
    )
    async with world.running(controller.run()) as client:
        await world.settled(1)
        yield client


def deployment(name: str, **more: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, **more},
        "spec": {"replicas": 1, "template": {"spec": {"runtimeClassName": "old"}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                   "availableReplicas": 1},
    }  # fmt: skip


def rollout(**spec: Any) -> Json:
    return {
        "metadata": {"name": "r", "uid": "uid-r", "generation": 1},
        "spec": {"from": "old", "to": "new", "canary": 0, "waveSize": 2, **spec},
    }


def moved(*uids: str) -> Json:
    return {"moves": [{"wave": 1, "time": "2026-01-01T00:00:00Z", "uids": list(uids)}]}


def class_of(client: MemoryClient, name: str) -> str:
    found = client.find(DEPLOYMENTS, name)
    assert found is not None
    return str(found["spec"]["template"]["spec"]["runtimeClassName"])


def status_of(client: MemoryClient) -> Json:
    found = client.find(RUNTIME_ROLLOUTS, "r")
    assert found is not None
    status: Json = found.get("status", {})
    return status


def patched(client: MemoryClient) -> list[str]:
    return [request.key for request in client.asked("patch", DEPLOYMENTS)]


async def test_a_wave_is_patched_with_marks_and_the_revision_that_was_read(world: World) -> None:
    for name in ("a", "b", "c"):
        world.client.put(DEPLOYMENTS, deployment(name))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    async with reconciling(world) as client:
        requests = client.asked("patch", DEPLOYMENTS)
        assert [request.key for request in requests[:2]] == ["default/a", "default/b"]
        body = requests[0].body
        assert body["spec"] == {"template": {"spec": {"runtimeClassName": "new"}}}
        marks = body["metadata"]["annotations"]
        assert marks == _MARKS | {_MOVED_AT: marks[_MOVED_AT]}
        assert body["metadata"]["uid"] == "uid-a"
        assert body["metadata"]["resourceVersion"]


async def test_waves_follow_to_the_end_and_events_say_so(world: World) -> None:
    for name in ("a", "b", "c"):
        world.client.put(DEPLOYMENTS, deployment(name))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    async with reconciling(world) as client:
        await world.settled(1)
        await world.settled(1)
        assert [class_of(client, name) for name in ("a", "b", "c")] == ["new"] * 3
        assert status_of(client)["phase"] == "Completed"
        reasons = [reason for name, _, reason, _ in client.events if name == "r"]
        assert reasons == ["Progressing", "Completed"]
        client.requests.clear()
        await world.settled(3600)
        assert client.writes == []


async def test_a_controller_that_starts_in_the_middle_of_a_wave_goes_on(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment("a", annotations=_MARKS))
    found = world.client.find(DEPLOYMENTS, "a")
    found["spec"]["template"]["spec"]["runtimeClassName"] = "new"
    found["status"]["updatedReplicas"] = 0
    for name in ("b", "c"):
        world.client.put(DEPLOYMENTS, deployment(name))
    world.client.put(RUNTIME_ROLLOUTS, {**rollout(), "status": moved("uid-a", "uid-b")})
    async with reconciling(world) as client:
        assert patched(client) == ["default/b"]
        assert status_of(client)["counts"]["moving"] == 1
        client.put(DEPLOYMENTS, {**found, "status": deployment("a")["status"]})
        await world.settled(1)
        assert patched(client) == ["default/b", "default/c"]


async def test_rollback_takes_the_marks_away(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment("a", annotations={**_MARKS, "mine": "1"}))
    world.client.find(DEPLOYMENTS, "a")["spec"]["template"]["spec"]["runtimeClassName"] = "new"
    world.client.put(RUNTIME_ROLLOUTS, {**rollout(rollback=True), "status": moved("uid-a")})
    async with reconciling(world) as client:
        await world.settled(1)
        found = client.find(DEPLOYMENTS, "a")
        assert found is not None
        assert found["metadata"]["annotations"] == {"mine": "1"}
        assert (class_of(client, "a"), status_of(client)["phase"]) == ("old", "RolledBack")


async def test_a_cron_job_s_template_is_moved(world: World) -> None:
    template = {"template": {"spec": {"runtimeClassName": "old"}}}
    cron_job = {
        "metadata": {"name": "c", "uid": "uid-c"}, "spec": {"jobTemplate": {"spec": template}},
    }  # fmt: skip
    world.client.put(CRON_JOBS, cron_job)
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    async with reconciling(world) as client:
        await world.settled(1)
        request = client.asked("patch", CRON_JOBS)[0]
        assert request.body["spec"] == {
            "jobTemplate": {"spec": {"template": {"spec": {"runtimeClassName": "new"}}}}
        }
        assert status_of(client)["phase"] == "Completed"


async def test_a_refusal_stops_the_rollout_and_is_tried_again_after_a_resume(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment("a"))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    world.client.failures.append(("patch", "deployments", ForbiddenError("denied by a policy")))
    async with reconciling(world) as client:
        await world.settled(1)
        stop = status_of(client)["stop"]
        assert stop["reason"] == "Refused"
        assert "denied by a policy" in stop["message"]
        await world.settled(100)
        assert patched(client) == ["default/a"]
        resumed = rollout(resumedAt="2026-01-01T00:02:00Z")
        resumed["metadata"]["generation"] = 2
        client.put(RUNTIME_ROLLOUTS, {**resumed, "status": status_of(client)})
        await world.settled(1)
        assert class_of(client, "a") == "new"


@pytest.mark.failing_reconciles
async def test_a_server_that_fails_is_asked_again(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment("a"))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    world.client.failures.append(("patch", "deployments", InternalError("out of order")))
    async with reconciling(world) as client:
        await world.settled(1)
        assert class_of(client, "a") == "new"
        assert "stop" not in status_of(client)


async def test_selectors_choose_by_labels_of_namespaces_and_workloads(world: World) -> None:
    world.client.put(NAMESPACES, {"metadata": {"name": "other"}})
    world.client.put(DEPLOYMENTS, deployment("a", labels={"move": "yes"}))
    world.client.put(DEPLOYMENTS, deployment("b"))
    world.client.put(DEPLOYMENTS, deployment("c", namespace="other", labels={"move": "yes"}))
    labels = {"workloadSelector": {"matchLabels": {"move": "yes"}}}
    world.client.put(
        RUNTIME_ROLLOUTS, rollout(namespaceSelector={"matchLabels": {"team": "a"}}, **labels)
    )
    async with reconciling(world) as client:
        await world.settled(1)
        assert patched(client) == ["default/a"]


async def test_a_class_that_comes_later_lets_the_rollout_begin(world: World) -> None:
    world.client.drop(RUNTIME_CLASSES, "new")
    world.client.put(DEPLOYMENTS, deployment("a"))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    async with reconciling(world) as client:
        assert status_of(client)["phase"] == "Blocked"
        client.put(RUNTIME_CLASSES, {"metadata": {"name": "new"}, "handler": "new"})
        await world.settled(1)
        assert class_of(client, "a") == "new"


async def test_marks_that_owners_wrote_or_took_away_change_nothing(world: World) -> None:
    for name, wave in (("b", "7"), ("c", "9" * 4000), ("d", "x")):
        forged = deployment(name, annotations={**_MARKS, "runtime.moorage.dev/wave": wave})
        forged["spec"]["template"]["spec"]["runtimeClassName"] = "new"
        world.client.put(DEPLOYMENTS, forged)
    world.client.put(DEPLOYMENTS, deployment("a"))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    async with reconciling(world) as client:
        await world.settled(1)
        status = status_of(client)
        assert (status["phase"], status["counts"]["total"], status["wave"]) == ("Completed", 1, 1)
        bare = client.find(DEPLOYMENTS, "a")
        assert bare is not None
        client.put(DEPLOYMENTS, {**bare, "metadata": bare["metadata"] | {"annotations": {}}})
        back = rollout(rollback=True)
        back["metadata"]["generation"] = 2
        client.put(RUNTIME_ROLLOUTS, {**back, "status": status_of(client)})
        await world.settled(1)
        assert [class_of(client, name) for name in "abcd"] == ["old", "new", "new", "new"]
        status = status_of(client)
        assert (status["phase"], status.get("moves")) == ("RolledBack", None)


async def test_a_rollout_that_was_created_again_takes_over_nothing(world: World) -> None:
    world.client.put(DEPLOYMENTS, deployment("a"))
    world.client.put(RUNTIME_ROLLOUTS, rollout())
    async with reconciling(world) as client:
        await world.settled(1)
        assert class_of(client, "a") == "new"
        client.drop(RUNTIME_ROLLOUTS, "r")
        await world.settled(1)
        again = rollout(rollback=True)
        again["metadata"]["uid"] = "uid-again"
        client.put(RUNTIME_ROLLOUTS, again)
        await world.settled(1)
        assert (class_of(client, "a"), status_of(client)["phase"]) == ("new", "RolledBack")
