"""The CronJob loop: a Job at each time, concurrency, history, events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import ConflictError, ForbiddenError
from moorage.api.jobs import SCHEDULED_TIMESTAMP
from moorage.controllers.cronjobs import CronJobController
from moorage.wire.client.resources import CRON_JOBS, JOBS
from tests.controllers.memory import MemoryClient, World


@pytest.fixture
def world() -> World:
    world = World()
    # A whole minute.
    world.clock.advance(60 - world.clock.now().timestamp() % 60)
    return world


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = CronJobController(world.client, world.informers, world.recorder, world.clock)
    async with world.running(controller.run(workers=2)) as client:
        yield client


def cron_job(
    world: World, schedule: str = "* * * * *", *, age_s: float = 0, **spec: Any
) -> dict[str, Any]:
    created = format_time(world.clock.now() - timedelta(seconds=age_s))
    return {
        "metadata": {"name": "tick", "namespace": "default", "uid": "cron",
                     "creationTimestamp": created},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Allow",
            "suspend": False,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "metadata": {"labels": {"app": "tick"}, "annotations": {"a": "b"}},
                "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
            },
            **spec,
        },
    }  # fmt: skip


def jobs(client: MemoryClient) -> list[str]:
    return client.names(JOBS)


def name_at(world: World) -> str:
    """The name of the Job of the minute that the clock shows."""
    return f"tick-{int(world.clock.now().timestamp()) // 60}"


def status(client: MemoryClient) -> dict[str, Any]:
    wire = client.find(CRON_JOBS, "tick")
    assert wire is not None
    return dict(wire.get("status", {}))


def active(client: MemoryClient) -> list[str]:
    return [reference["name"] for reference in status(client).get("active", ())]


async def finish(
    world: World, name: str, condition: str = "Complete", *, seconds: float = 0
) -> None:
    wire = world.client.find(JOBS, name)
    assert wire is not None
    now = format_time(world.clock.now())
    conditions = [{"type": condition, "status": "True"}]
    end = {"completionTime": now} if condition == "Complete" else {}
    world.client.put(JOBS, {**wire, "status": {"conditions": conditions, "startTime": now, **end}})
    await world.settled(seconds)


async def test_a_job_is_created_at_each_time(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world))
    async with reconciling(world) as client:
        await world.settled(59)
        assert jobs(client) == []
        await world.settled(2)
        first = name_at(world)
        (job,) = client.all(JOBS)
        minute = format_time(world.clock.now().replace(second=0))
        assert job["metadata"] | {"uid": "", "creationTimestamp": "", "resourceVersion": ""} == {
            "name": first, "namespace": "default", "labels": {"app": "tick"},
            "annotations": {"a": "b", SCHEDULED_TIMESTAMP: minute},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": "cron",
                 "controller": True, "blockOwnerDeletion": True}
            ],
            "uid": "", "creationTimestamp": "", "resourceVersion": "",
        }  # fmt: skip
        assert job["spec"] == {"template": {"spec": {"containers": [{"name": "c"}]}}}
        assert (active(client), status(client)["lastScheduleTime"]) == ([first], minute)
        await world.settled(60)
        assert jobs(client) == [first, name_at(world)]
        assert client.events[0] == ("tick", "Normal", "SuccessfulCreate", f"Created job {first}")


async def test_a_finished_job_is_active_no_more(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world))
    async with reconciling(world) as client:
        await world.settled(61)
        (name,) = jobs(client)
        await finish(world, name)
        end = format_time(world.clock.now())
        await world.settled(1)
        assert active(client) == []
        assert status(client)["lastSuccessfulTime"] == end
        message = f"Saw completed job: {name}, condition: Complete"
        assert ("tick", "Normal", "SawCompletedJob", message) in client.events
        await world.settled(60)
        (_, second) = jobs(client)
        await finish(world, second, "Failed", seconds=1)
        assert active(client) == []
        assert status(client)["lastSuccessfulTime"] == end


async def test_old_jobs_are_deleted_beyond_the_limits(world: World) -> None:
    limits: dict[str, Any] = {"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 0}
    world.client.put(CRON_JOBS, cron_job(world, **limits))
    async with reconciling(world) as client:
        names = []
        for condition in ("Complete", "Failed", "Complete", "Complete"):
            await world.settled(60.2)
            names.append(name_at(world))
            await finish(world, names[-1], condition, seconds=0.2)
        assert jobs(client) == names[2:]
        deletions = client.asked("delete", JOBS)
        assert {deletion.more["propagation_policy"] for deletion in deletions} == {"Background"}
        await world.settled(1)
        assert ("tick", "Normal", "SuccessfulDelete", f"Deleted job {names[0]}") in client.events


async def test_forbidden_concurrency_skips_a_time(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, concurrencyPolicy="Forbid"))
    async with reconciling(world) as client:
        await world.settled(61)
        first = name_at(world)
        await world.settled(60)
        await world.settled(1)
        assert jobs(client) == [first]
        reasons = [reason for _, _, reason, _ in client.events]
        assert "JobAlreadyActive" in reasons
        # As upstream: what was due meanwhile starts once.
        await finish(world, first, seconds=1)
        assert len(jobs(client)) == 2


async def test_a_running_job_is_replaced(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, concurrencyPolicy="Replace"))
    async with reconciling(world) as client:
        await world.settled(61)
        await world.settled(60)
        assert jobs(client) == active(client) == [name_at(world)]


async def test_a_suspended_one_starts_nothing_until_it_goes_on(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, suspend=True))
    async with reconciling(world) as client:
        await world.settled(200)
        assert jobs(client) == []
        wire = client.find(CRON_JOBS, "tick")
        assert wire is not None
        client.put(CRON_JOBS, {**wire, "spec": {**wire["spec"], "suspend": False}})
        await world.settled(0.2)
        # Of the times that were missed, the last one.
        assert jobs(client) == [name_at(world)]


@pytest.mark.parametrize(("deadline_s", "starts"), [(20, False), (700, True)])
async def test_times_before_the_deadline_are_not_made_up_for(
    world: World, deadline_s: int, starts: bool
) -> None:
    missed = world.clock.now() - timedelta(minutes=10)
    hourly = f"{missed.minute} * * * *"
    world.client.put(
        CRON_JOBS, cron_job(world, hourly, age_s=7200, startingDeadlineSeconds=deadline_s)
    )
    async with reconciling(world) as client:
        await world.settled(1)
        assert bool(jobs(client)) == starts


async def test_many_missed_times_are_warned_about(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, age_s=101 * 60 + 5))
    async with reconciling(world) as client:
        await world.settled(0.5)
        assert jobs(client) == [name_at(world)]
        assert next(reason for _, _, reason, _ in client.events) == "TooManyMissedTimes"


async def test_a_job_that_was_created_before_a_crash_is_found_again(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, age_s=65))
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": "cron",
             "controller": True}  # fmt: skip
    name = name_at(world)
    world.client.put(JOBS, {"metadata": {"name": name, "uid": "j", "ownerReferences": [owner]}})
    async with reconciling(world) as client:
        await world.settled(0.5)
        assert (jobs(client), active(client)) == ([name], [name])
        reasons = [reason for _, _, reason, _ in client.events]
        assert "SuccessfulCreate" not in reasons


async def test_anothers_job_of_that_name_is_left_alone(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, age_s=65))
    world.client.put(JOBS, {"metadata": {"name": name_at(world), "uid": "j"}})
    async with reconciling(world) as client:
        await world.settled(0.5)
        assert active(client) == []
        await world.settled(60)
        assert active(client) == [name_at(world)]


async def test_an_active_job_that_is_gone_is_missing(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world))
    async with reconciling(world) as client:
        await world.settled(61)
        (name,) = jobs(client)
        client.drop(JOBS, name)
        await world.settled(1)
        assert active(client) == []
        assert ("tick", "Normal", "MissingJob", f"Active job went missing: {name}") in client.events


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ({"schedule": "x"}, "UnparseableSchedule",
         'unparseable schedule: "x" : expected exactly 5 fields, found 1: [x]'),
        ({"schedule": "0 0 31 2 *"}, "InvalidSchedule",
         "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 "
         "second"),
        ({"timeZone": "Mars/X"}, "UnknownTimeZone",
         'invalid timeZone: "Mars/X": unknown time zone Mars/X'),
    ],
)  # fmt: skip
async def test_a_schedule_that_cannot_be_followed_is_reported(
    world: World, spec: dict[str, Any], reason: str, says: str
) -> None:
    wire = cron_job(world)
    wire["spec"] |= spec
    world.client.put(CRON_JOBS, wire)
    async with reconciling(world) as client:
        await world.settled(61)
        assert client.events == [("tick", "Warning", reason, says)]
        assert jobs(client) == []


async def test_times_are_those_of_the_zone(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world, timeZone="Asia/Kolkata"))
    async with reconciling(world) as client:
        await world.settled(61)
        (job,) = client.all(JOBS)
        assert job["metadata"]["annotations"][SCHEDULED_TIMESTAMP].endswith("+05:30")


@pytest.mark.failing_reconciles
async def test_a_refused_job_is_tried_again(world: World) -> None:
    world.client.put(CRON_JOBS, cron_job(world))
    world.client.failures.append(("create", JOBS.plural, ForbiddenError("quota")))
    world.client.failures.append(("patch", CRON_JOBS.plural, ConflictError("changed")))
    async with reconciling(world) as client:
        await world.settled(61)
        await world.settled(2)
        assert jobs(client) == active(client) == [name_at(world)]
        assert ("tick", "Warning", "FailedCreate", "Error creating job: quota") in client.events


async def test_one_that_is_being_deleted_starts_nothing(world: World) -> None:
    wire = cron_job(world, age_s=100)
    wire["metadata"] |= {"deletionTimestamp": format_time(world.clock.now()), "finalizers": ["x/y"]}
    world.client.put(CRON_JOBS, wire)
    async with reconciling(world) as client:
        await world.settled(100)
        assert jobs(client) == []
