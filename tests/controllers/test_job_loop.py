"""The Job loop: pods until enough have succeeded, counts, conditions, events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import ConflictError, ForbiddenError, InternalError, NotFoundError
from moorage.api.jobs import COMPLETION_INDEX, INDEX_FAILURES, TRACKING_FINALIZER
from moorage.controllers.jobs import JobController, orphan_release, ttl_after_finished
from moorage.controllers.objects import PODS
from moorage.wire.client.resources import JOBS
from tests.controllers.memory import MemoryClient, World

REACHED = "Reached expected number of succeeded pods"


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = JobController(world.client, world.informers, world.recorder, world.clock)
    orphans = orphan_release(world.client, world.informers, world.clock)
    ttl = ttl_after_finished(world.client, world.informers, world.clock)
    loops = (controller.run(workers=2), orphans.run(workers=1), ttl.run())
    async with world.running(*loops) as client:
        yield client


def job(*, restart_policy: str = "Never", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "work", "namespace": "default", "uid": "job"},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"app": "work"}},
            "template": {
                "metadata": {"labels": {"app": "work"}},
                "spec": {
                    "restartPolicy": restart_policy,
                    "containers": [{"name": "c", "image": "a"}],
                },
            },
            **spec,
        },
    }


def indexed(completions: int, **spec: Any) -> dict[str, Any]:
    return job(**{"completionMode": "Indexed", "completions": completions,
                  "parallelism": completions, **spec})  # fmt: skip


def changed(client: MemoryClient, **spec: Any) -> None:
    """Replace parts of the Job's specification, keeping its status."""
    wire = client.find(JOBS, "work")
    assert wire is not None
    client.put(JOBS, {**wire, "spec": {**wire["spec"], **spec}})


def pods(client: MemoryClient, phase: str = "") -> list[dict[str, Any]]:
    """The pods in a phase; `""`: those that the node agent has not seen."""
    return [wire for wire in client.all(PODS) if wire.get("status", {}).get("phase", "") == phase]


def index_of(wire: dict[str, Any]) -> str:
    return str(wire["metadata"]["annotations"][COMPLETION_INDEX])


def indexes(client: MemoryClient, phase: str = "") -> list[str]:
    return sorted(map(index_of, pods(client, phase)))


async def become(
    world: World, wires: list[dict[str, Any]], phase: str, *, code: int = 0, seconds: float = 1,
    **status: Any,
) -> None:  # fmt: skip
    """Move pods to a phase, with a container that ended then if the phase is a last one."""
    containers: dict[str, Any] = {"name": "c"}
    if phase in ("Succeeded", "Failed"):
        terminated = {"exitCode": code or int(phase == "Failed"),
                      "finishedAt": format_time(world.clock.now())}  # fmt: skip
        containers["state"] = {"terminated": terminated}
    for wire in wires:
        new = {"phase": phase, "containerStatuses": [containers], **status}
        world.client.put(PODS, {**wire, "status": new})
    await world.settled(seconds)


def ready(world: World) -> dict[str, Any]:
    now = format_time(world.clock.now())
    return {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]}


def status(client: MemoryClient) -> dict[str, Any]:
    wire = client.find(JOBS, "work")
    assert wire is not None
    return dict(wire.get("status", {}))


def counts(client: MemoryClient) -> tuple[int, int, int]:
    """Active, succeeded and failed."""
    now = status(client)
    return now.get("active", 0), now.get("succeeded", 0), now.get("failed", 0)


def conditions(client: MemoryClient) -> list[tuple[str, str, str]]:
    return [
        (condition["type"], condition["status"], condition["reason"])
        for condition in status(client).get("conditions", ())
    ]


def reasons(client: MemoryClient) -> list[str]:
    return [reason for _, _, reason, _ in client.events]


async def test_a_job_runs_one_pod_and_is_complete(world: World) -> None:
    world.client.put(JOBS, job())
    start = format_time(world.clock.now())
    async with reconciling(world) as client:
        (pod,) = pods(client)
        assert pod["metadata"]["finalizers"] == [TRACKING_FINALIZER]
        assert pod["metadata"]["labels"] == {"app": "work"}
        assert pod["metadata"]["ownerReferences"][0] | {"blockOwnerDeletion": True} == {
            "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job",
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        assert status(client) == {
            "startTime": start, "active": 1, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {},
        }  # fmt: skip
        await become(world, pods(client), "Running", **ready(world))
        assert status(client)["ready"] == 1
        await become(world, pods(client, "Running"), "Succeeded", seconds=0)
        end = format_time(world.clock.now())
        final = status(client)
        assert [c["message"] for c in final.pop("conditions")] == [REACHED, REACHED]
        assert final == {
            "startTime": start, "completionTime": end, "succeeded": 1, "ready": 0,
            "terminating": 0, "uncountedTerminatedPods": {},
        }  # fmt: skip
        assert conditions(client) == [
            ("SuccessCriteriaMet", "True", "CompletionsReached"),
            ("Complete", "True", "CompletionsReached"),
        ]
        (pod,) = pods(client, "Succeeded")
        assert pod["metadata"]["finalizers"] == []
        await world.settled(1)
        client.requests.clear()
        await world.settled(700)
        assert client.writes == []
    name = pod["metadata"]["name"]
    assert world.client.events == []  # They were written before the requests were cleared.
    assert name.startswith("work-")


async def test_events_say_what_happened(world: World) -> None:
    world.client.put(JOBS, job())
    async with reconciling(world) as client:
        (pod,) = pods(client)
        await become(world, [pod], "Succeeded")
        await world.settled(1)
        assert client.events == [
            ("work", "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}"),
            ("work", "Normal", "Completed", "Job completed"),
        ]


async def test_an_ended_pod_is_named_in_the_status_before_it_is_released_and_counted(
    world: World,
) -> None:
    world.client.put(JOBS, job(completions=2))
    async with reconciling(world) as client:
        (pod,) = pods(client)
        client.requests.clear()
        await become(world, [pod], "Succeeded")
        first, release, last = client.asked("patch")[:3]
        uid = pod["metadata"]["uid"]
        assert first.body["status"]["uncountedTerminatedPods"]["succeeded"] == (uid,)
        assert "succeeded" not in first.body["status"]
        assert release.body["metadata"] == {
            "uid": uid, "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
        }  # fmt: skip
        assert last.body["status"]["succeeded"] == 1
        assert last.body["status"]["uncountedTerminatedPods"]["succeeded"] is None
        assert counts(client) == (1, 1, 0)


@pytest.mark.failing_reconciles
@pytest.mark.parametrize("failing", [1, 2])
async def test_a_pod_is_counted_once_when_a_request_in_between_fails(
    world: World, failing: int
) -> None:
    """The first status update, or the removal of the finalizer, fails: all of it is tried again."""
    world.client.put(JOBS, job(completions=2))
    async with reconciling(world) as client:
        plural = JOBS.plural if failing == 1 else PODS.plural
        client.failures.append(("patch", plural, InternalError("no")))
        await become(world, pods(client), "Succeeded", seconds=5)
        assert counts(client) == (1, 1, 0)
        assert status(client)["uncountedTerminatedPods"] == {}


async def test_pods_that_were_released_before_a_crash_are_counted(world: World) -> None:
    uncounted = {"succeeded": ["gone", "s"], "failed": ["f"]}
    world.client.put(JOBS, {**job(completions=9), "status": {"uncountedTerminatedPods": uncounted}})
    async with reconciling(world) as client:
        assert counts(client) == (1, 2, 1)
        assert status(client)["uncountedTerminatedPods"] == {}


async def test_a_removed_finalizer_that_the_informer_does_not_show_is_not_counted_again(
    world: World,
) -> None:
    world.client.put(JOBS, job(completions=3, parallelism=2))
    async with reconciling(world) as client:
        first, second = pods(client)
        # No change of pods is shown any more.
        client.shows = lambda resource, _: resource is not PODS

        async def show(wire: dict[str, Any], revision: str, phase: str) -> None:
            meta = {**wire["metadata"], "resourceVersion": revision}
            shown = {**wire, "metadata": meta, "status": {"phase": phase}}
            client.send(PODS, "MODIFIED", shown)
            await world.settled(1)

        await show(first, "901", "Succeeded")
        assert counts(client)[1] == 1
        await show(second, "902", "Running")
        assert counts(client)[1] == 1


async def test_parallel_pods_never_exceed_the_remaining_completions(world: World) -> None:
    world.client.put(JOBS, job(completions=3, parallelism=2))
    async with reconciling(world) as client:
        assert len(pods(client)) == 2
        await become(world, pods(client), "Succeeded")
        assert len(pods(client)) == 1
        assert counts(client) == (1, 2, 0)
        await become(world, pods(client), "Succeeded")
        assert counts(client) == (0, 3, 0)
        assert conditions(client)[-1][0] == "Complete"


async def test_a_work_queue_drains_after_its_first_success(world: World) -> None:
    spec = job(parallelism=3)
    del spec["spec"]["completions"]
    world.client.put(JOBS, spec)
    async with reconciling(world) as client:
        first, second, third = pods(client)
        await become(world, [first], "Succeeded")
        assert counts(client) == (2, 1, 0)
        await become(world, [second], "Failed", seconds=60)
        assert counts(client) == (1, 1, 1)
        assert not status(client).get("conditions")
        await become(world, [third], "Succeeded")
        assert counts(client) == (0, 2, 1)
        assert conditions(client)[-1][0] == "Complete"


async def test_fewer_parallel_pods_delete_the_youngest_ones_uncounted(world: World) -> None:
    world.client.put(JOBS, job(completions=9, parallelism=3))
    async with reconciling(world) as client:
        running = pods(client)[:2]
        await become(world, running, "Running", **ready(world))
        changed(client, parallelism=2)
        await world.settled(1)
        assert sorted(pod["metadata"]["uid"] for pod in client.all(PODS)) == sorted(
            pod["metadata"]["uid"] for pod in running
        )
        assert counts(client) == (2, 0, 0)
        assert "SuccessfulDelete" in reasons(client)


async def test_a_failed_pod_is_replaced_after_a_pause_that_doubles(world: World) -> None:
    world.client.put(JOBS, job())
    async with reconciling(world) as client:
        for failures, pause_s in ((1, 10), (2, 20), (3, 40)):
            await become(world, pods(client), "Failed", seconds=0)
            assert counts(client) == (0, 0, failures)
            await world.settled(pause_s - 1)
            assert pods(client) == []
            await world.settled(2)
            assert len(pods(client)) == 1


async def test_a_success_ends_the_pauses(world: World) -> None:
    world.client.put(JOBS, job(completions=3, parallelism=2))
    async with reconciling(world) as client:
        first, second = pods(client)
        await become(world, [first], "Failed")
        await become(world, [second], "Succeeded")
        assert counts(client) == (2, 1, 1)


async def test_a_job_fails_above_its_back_off_limit(world: World) -> None:
    world.client.put(JOBS, job(backoffLimit=1, completions=4, parallelism=2))
    async with reconciling(world) as client:
        first, second = pods(client)
        await become(world, [first], "Failed", seconds=11)
        (third,) = pods(client, "Failed")[1:] or [p for p in pods(client) if p != second]
        await become(world, [second], "Running")
        await become(world, [third], "Failed")
        assert conditions(client) == [
            ("FailureTarget", "True", "BackoffLimitExceeded"),
            ("Failed", "True", "BackoffLimitExceeded"),
        ]
        # The pod that still ran counts as failed too.
        assert counts(client) == (0, 0, 3)
        assert "completionTime" not in status(client)
        await world.settled(1)
        assert client.events[-1] == (
            "work", "Warning", "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "restarts", "fails"), [(0, 1, True), (3, 2, False), (3, 3, True)]
)
async def test_restarts_in_place_count_towards_the_limit(
    world: World, limit: int, restarts: int, fails: bool
) -> None:
    world.client.put(JOBS, job(restart_policy="OnFailure", backoffLimit=limit))
    async with reconciling(world) as client:
        (pod,) = pods(client)
        containers: dict[str, Any] = {
            "containerStatuses": [{"name": "c", "restartCount": restarts - 1}],
            "initContainerStatuses": [{"name": "i", "restartCount": 1}],
        }
        await become(world, [pod], "Running", **containers)
        assert (client.find(PODS, pod["metadata"]["name"]) is None) == fails
        assert bool(conditions(client)) == fails


async def test_a_job_fails_at_its_deadline(world: World) -> None:
    world.client.put(JOBS, job(activeDeadlineSeconds=30))
    async with reconciling(world) as client:
        await become(world, pods(client), "Running", seconds=28)
        assert counts(client) == (1, 0, 0)
        await world.settled(3)
        assert conditions(client)[-1] == ("Failed", "True", "DeadlineExceeded")
        assert client.all(PODS) == []


async def test_a_failed_job_waits_for_its_terminating_pods(world: World) -> None:
    world.client.put(JOBS, job(activeDeadlineSeconds=30))
    async with reconciling(world) as client:
        (pod,) = pods(client)
        # A finalizer of another controller keeps the pod.
        pod["metadata"]["finalizers"].append("example.com/hold")
        await become(world, [pod], "Running", seconds=31)
        assert conditions(client) == [("FailureTarget", "True", "DeadlineExceeded")]
        assert (status(client)["terminating"], counts(client)) == (1, (0, 0, 1))
        client.requests.clear()
        client.drop(PODS, pod["metadata"]["name"])
        await world.settled(1)
        assert conditions(client)[-1] == ("Failed", "True", "DeadlineExceeded")
        assert status(client)["terminating"] == 0


async def test_a_suspended_job_has_no_pods_and_starts_again_when_resumed(world: World) -> None:
    world.client.put(JOBS, job(parallelism=2, completions=2))
    async with reconciling(world) as client:
        assert len(pods(client)) == 2
        changed(client, suspend=True)
        await world.settled(60)
        assert client.all(PODS) == []
        assert counts(client) == (0, 0, 0)
        assert conditions(client) == [("Suspended", "True", "JobSuspended")]
        assert "startTime" not in status(client)
        changed(client, suspend=False)
        await world.settled(1)
        assert len(pods(client)) == 2
        assert conditions(client) == [("Suspended", "False", "JobResumed")]
        assert status(client)["startTime"]
        assert [r for r in reasons(client) if r in ("Suspended", "Resumed")] == [
            "Suspended", "Resumed",
        ]  # fmt: skip


async def test_a_job_that_is_created_suspended_says_so(world: World) -> None:
    world.client.put(JOBS, job(suspend=True))
    async with reconciling(world) as client:
        assert client.all(PODS) == []
        assert conditions(client) == [("Suspended", "True", "JobSuspended")]
        assert "startTime" not in status(client)


async def test_a_job_that_another_controller_manages_is_left_alone(world: World) -> None:
    world.client.put(JOBS, job(managedBy="example.com/queue"))
    async with reconciling(world) as client:
        await world.settled(1)
        assert client.writes == []


async def test_our_own_name_as_the_manager_changes_nothing(world: World) -> None:
    world.client.put(JOBS, job(managedBy="kubernetes.io/job-controller"))
    async with reconciling(world) as client:
        assert len(pods(client)) == 1


async def test_orphans_are_adopted_with_a_finalizer_and_counted(world: World) -> None:
    orphan = {
        "metadata": {"name": "orphan", "labels": {"app": "work"},
                     "creationTimestamp": format_time(world.clock.now())},
        "status": {"phase": "Succeeded"},
    }  # fmt: skip
    world.client.put(PODS, orphan)
    world.client.put(JOBS, job(completions=2))
    async with reconciling(world) as client:
        adoption = client.asked("patch", PODS)[0]
        assert adoption.body["metadata"]["finalizers"] == [TRACKING_FINALIZER]
        await world.settled(1)
        assert counts(client) == (1, 1, 0)


@pytest.mark.failing_reconciles
async def test_a_refused_pod_is_tried_again_with_an_event(world: World) -> None:
    world.client.put(JOBS, job(parallelism=4, completions=4))
    world.client.failures.append(("create", PODS.plural, ForbiddenError("quota")))
    async with reconciling(world) as client:
        await world.settled(5)
        assert len(pods(client)) == 4
        assert ("work", "Warning", "FailedCreate", "Error creating: quota") in client.events
        assert counts(client) == (4, 0, 0)


async def test_a_job_that_is_gone_before_its_status_is_written_is_forgotten(world: World) -> None:
    world.client.put(JOBS, job())
    world.client.failures.append(("patch", JOBS.plural, NotFoundError("gone")))
    async with reconciling(world) as client:
        assert len(client.asked("create", PODS)) == 1


@pytest.mark.failing_reconciles
async def test_a_status_that_was_read_too_early_is_not_written(world: World) -> None:
    world.client.put(JOBS, job())
    world.client.failures.append(("patch", JOBS.plural, ConflictError("changed")))
    async with reconciling(world) as client:
        await world.settled(1)
        assert counts(client) == (1, 0, 0)
        assert len(pods(client)) == 1


async def test_a_job_that_is_being_deleted_releases_its_pods_and_makes_none(world: World) -> None:
    world.client.put(JOBS, job(parallelism=2, completions=2))
    async with reconciling(world) as client:
        wire = client.find(JOBS, "work")
        assert wire is not None
        meta = {**wire["metadata"], "deletionTimestamp": format_time(world.clock.now()),
                "finalizers": ["foregroundDeletion"]}  # fmt: skip
        client.put(JOBS, {**wire, "metadata": meta})
        await world.settled(1)
        assert [pod["metadata"]["finalizers"] for pod in client.all(PODS)] == [[], []]
        client.drop(PODS, client.all(PODS)[0]["metadata"]["name"])
        await world.settled(20)
        assert len(client.all(PODS)) == 1


async def test_pods_of_a_job_that_is_gone_are_released(world: World) -> None:
    world.client.put(JOBS, job(parallelism=2, completions=2))
    async with reconciling(world) as client:
        assert len(pods(client)) == 2
        client.drop(JOBS, "work")
        await world.settled(1)
        assert [pod["metadata"]["finalizers"] for pod in client.all(PODS)] == [[], []]


async def test_pods_that_were_left_behind_are_released_at_the_start(world: World) -> None:
    def pod(name: str, **owner: Any) -> dict[str, Any]:
        owners = [{"controller": True, "name": "old", "uid": "old", **owner}] if owner else []
        return {"metadata": {"name": name, "ownerReferences": owners,
                             "finalizers": [TRACKING_FINALIZER]}}  # fmt: skip

    world.client.put(PODS, pod("orphan"))
    world.client.put(PODS, pod("left", apiVersion="batch/v1", kind="Job"))
    world.client.put(PODS, pod("foreign", apiVersion="example.com/v1", kind="Job"))
    async with reconciling(world) as client:
        finalizers = {
            wire["metadata"]["name"]: wire["metadata"]["finalizers"] for wire in client.all(PODS)
        }
        assert finalizers == {"orphan": [], "left": [], "foreign": [TRACKING_FINALIZER]}


# Indexed Jobs


async def test_each_index_gets_a_pod_that_knows_it(world: World) -> None:
    world.client.put(JOBS, indexed(3))
    async with reconciling(world) as client:
        assert indexes(client) == ["0", "1", "2"]
        pod = next(wire for wire in pods(client) if index_of(wire) == "2")
        assert pod["metadata"]["generateName"] == "work-2-"
        assert pod["metadata"]["labels"] == {"app": "work", COMPLETION_INDEX: "2"}
        assert pod["spec"]["hostname"] == "work-2"
        assert pod["spec"]["containers"][0]["env"] == [
            {"name": "JOB_COMPLETION_INDEX",
             "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}}
        ]  # fmt: skip
        await become(world, [pod], "Succeeded")
        assert (counts(client), status(client)["completedIndexes"]) == ((2, 1, 0), "2")
        (zero,) = (wire for wire in pods(client) if index_of(wire) == "0")
        await become(world, [zero], "Failed", seconds=12)
        assert indexes(client) == ["0", "1"]
        await become(world, pods(client), "Succeeded")
        assert (counts(client), status(client)["completedIndexes"]) == ((0, 3, 1), "0-2")
        assert conditions(client)[-1][0] == "Complete"


async def test_only_one_pod_of_an_index_stays_and_none_without_a_valid_one(world: World) -> None:
    world.client.put(JOBS, indexed(2))
    async with reconciling(world) as client:
        template = pods(client)[0]
        for name, index in (("double", index_of(template)), ("high", "7"), ("bad", "x")):
            meta = {**template["metadata"], "name": name, "uid": name,
                    "annotations": {COMPLETION_INDEX: index}}  # fmt: skip
            client.put(PODS, {**template, "metadata": meta, "status": {"phase": "Pending"}})
        await become(world, pods(client), "Running")
        await world.settled(1)
        assert indexes(client, "Running") == ["0", "1"]
        assert pods(client, "Pending") == []
        assert counts(client) == (2, 0, 0)


async def test_indexes_above_lowered_completions_are_forgotten(world: World) -> None:
    world.client.put(JOBS, indexed(5))
    async with reconciling(world) as client:
        done = [wire for wire in pods(client) if index_of(wire) in ("1", "2", "3", "4")]
        await become(world, done, "Succeeded")
        assert status(client)["completedIndexes"] == "1-4"
        changed(client, completions=3, parallelism=3)
        await world.settled(1)
        assert (counts(client), status(client)["completedIndexes"]) == ((1, 2, 0), "1,2")


async def test_failures_of_each_index_are_limited(world: World) -> None:
    world.client.put(JOBS, indexed(2, backoffLimitPerIndex=1, backoffLimit=2**31 - 1))
    async with reconciling(world) as client:
        first = next(wire for wire in pods(client) if index_of(wire) == "0")
        other = next(wire for wire in pods(client) if index_of(wire) == "1")
        assert first["metadata"]["annotations"][INDEX_FAILURES] == "0"
        await become(world, [first], "Failed", seconds=2)
        # It is kept, for its count, until it is replaced.
        (kept,) = pods(client, "Failed")
        assert kept["metadata"]["finalizers"] == [TRACKING_FINALIZER]
        assert status(client)["failedIndexes"] == ""
        await world.settled(9)
        second = next(wire for wire in pods(client) if index_of(wire) == "0")
        assert second["metadata"]["annotations"][INDEX_FAILURES] == "1"
        assert counts(client) == (2, 0, 1)
        await become(world, [second], "Failed", seconds=700)
        assert status(client)["failedIndexes"] == "0"
        assert indexes(client) == ["1"]
        await become(world, [other], "Succeeded")
        assert conditions(client)[-1] == ("Failed", "True", "FailedIndexes")
        assert counts(client) == (0, 1, 2)


async def test_too_many_failed_indexes_end_the_job(world: World) -> None:
    world.client.put(JOBS, indexed(3, backoffLimitPerIndex=0, maxFailedIndexes=1, backoffLimit=99))
    async with reconciling(world) as client:
        one, two, _ = pods(client)
        await become(world, [one], "Failed")
        assert not conditions(client)
        await become(world, [two], "Failed")
        assert conditions(client)[-1] == ("Failed", "True", "MaxFailedIndexesExceeded")
        assert status(client)["failedIndexes"] == "0,1"


async def test_enough_succeeded_indexes_complete_the_job(world: World) -> None:
    rules = [{"succeededIndexes": "2-3"}, {"succeededCount": 1, "succeededIndexes": "0,2"}]
    world.client.put(JOBS, indexed(4, successPolicy={"rules": rules}))
    async with reconciling(world) as client:
        await become(world, [wire for wire in pods(client) if index_of(wire) == "1"], "Succeeded")
        assert not conditions(client)
        await become(world, [wire for wire in pods(client) if index_of(wire) == "0"], "Succeeded")
        assert conditions(client) == [
            ("SuccessCriteriaMet", "True", "SuccessPolicy"),
            ("Complete", "True", "SuccessPolicy"),
        ]
        # The pods that were not needed are no failures.
        assert counts(client) == (0, 2, 0)
        assert pods(client) == []
        assert status(client)["conditions"][0]["message"] == "Matched rules at index 1"


def policy(**rule: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [rule]}, "podReplacementPolicy": "Failed"}


async def test_the_failure_policy_can_end_the_job(world: World) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    world.client.put(JOBS, job(**policy(**rule)))
    async with reconciling(world) as client:
        (pod,) = pods(client)
        await become(world, [pod], "Failed", code=42)
        assert conditions(client)[-1] == ("Failed", "True", "PodFailurePolicy")
        name = f"default/{pod['metadata']['name']}"
        assert status(client)["conditions"][0]["message"] == (
            f"Container c for pod {name} failed with exit code 42 matching FailJob rule at index 0"
        )


async def test_the_failure_policy_can_ignore_a_failure(world: World) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    world.client.put(JOBS, job(backoffLimit=0, **policy(**rule)))
    async with reconciling(world) as client:
        disrupted: dict[str, Any] = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}
        await become(world, pods(client), "Failed", seconds=11, **disrupted)
        assert counts(client) == (1, 0, 0)
        assert not conditions(client)


async def test_an_ignored_failure_of_an_index_is_annotated(world: World) -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1]}}
    world.client.put(JOBS, indexed(1, backoffLimitPerIndex=0, backoffLimit=9, **policy(**rule)))
    async with reconciling(world) as client:
        await become(world, pods(client), "Failed", code=3, seconds=11)
        (replacement,) = pods(client)
        assert replacement["metadata"]["annotations"] == {
            COMPLETION_INDEX: "0",
            INDEX_FAILURES: "0",
            "batch.kubernetes.io/job-index-ignored-failure-count": "1",
        }


async def test_the_failure_policy_can_give_up_an_index(world: World) -> None:
    rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [5]}}
    world.client.put(JOBS, indexed(2, backoffLimitPerIndex=3, backoffLimit=99, **policy(**rule)))
    async with reconciling(world) as client:
        await become(world, [w for w in pods(client) if index_of(w) == "1"], "Failed", code=5)
        assert status(client)["failedIndexes"] == "1"
        await world.settled(700)
        assert indexes(client) == ["0"]


@pytest.mark.parametrize(("replacement", "is_replaced"), [
    ("Failed", False), ("TerminatingOrFailed", True),
])  # fmt: skip
async def test_a_terminating_pod_is_replaced_as_the_policy_says(
    world: World, replacement: str, is_replaced: bool
) -> None:
    world.client.put(JOBS, job(podReplacementPolicy=replacement))
    async with reconciling(world) as client:
        (pod,) = pods(client)
        meta = {**pod["metadata"], "deletionTimestamp": format_time(world.clock.now()),
                "finalizers": [TRACKING_FINALIZER, "example.com/hold"]}  # fmt: skip
        client.put(PODS, {**pod, "metadata": meta, "status": {"phase": "Running"}})
        await world.settled(11)
        assert bool(pods(client)) == is_replaced
        assert counts(client) == ((1, 0, 1) if is_replaced else (0, 0, 0))
        assert status(client)["terminating"] == 1


async def test_a_finished_job_is_deleted_when_its_time_is_over(world: World) -> None:
    world.client.put(JOBS, job(ttlSecondsAfterFinished=30))
    async with reconciling(world) as client:
        await become(world, pods(client), "Succeeded", seconds=0)
        assert conditions(client)[-1][0] == "Complete"
        await world.settled(28)
        assert client.find(JOBS, "work") is not None
        await world.settled(3)
        assert client.find(JOBS, "work") is None
        (deletion,) = client.asked("delete", JOBS)
        assert deletion.more["propagation_policy"] == "Foreground"
        assert deletion.more["uid"] == "job"


async def test_a_longer_time_to_live_is_respected(world: World) -> None:
    world.client.put(JOBS, job(ttlSecondsAfterFinished=30))
    async with reconciling(world) as client:
        await become(world, pods(client), "Succeeded", seconds=10)
        changed(client, ttlSecondsAfterFinished=100)
        await world.settled(30)
        assert client.find(JOBS, "work") is not None
        await world.settled(70)
        assert client.find(JOBS, "work") is None
