"""Rules of the Job controller: ends of pods, pauses, policies, pending indexes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.jobs import (
    COMPLETION_INDEX,
    TRACKING_FINALIZER,
    Job,
    JobSpec,
    SuccessPolicy,
    merged,
)
from moorage.controllers.jobs.backoff import Failures, index_seconds_left
from moorage.controllers.jobs.failure_policy import new_condition, with_condition
from moorage.controllers.jobs.job_pods import (
    completion_index,
    finish_time,
    has_failed,
    job_pod,
    restarts,
)
from moorage.controllers.jobs.planning import make_plan, matched_rule
from moorage.controllers.jobs.tracking import track
from moorage.controllers.jobs.ttl import expiry_time
from moorage.controllers.jobs.view import View
from moorage.controllers.objects import Pod
from tests.controllers.objects import NOW, ago


def job_of(status: dict[str, Any] | None = None, **spec: Any) -> Job:
    wire = {"metadata": {"name": "j", "uid": "j"}, "spec": spec, "status": status or {}}
    return msgspec.convert(wire, Job)


def pod_of(phase: str = "Running", *, index: int | None = None, **parts: Any) -> Pod:
    meta = {"name": "p", "uid": "p", "creationTimestamp": ago(500),
            "finalizers": [TRACKING_FINALIZER], **parts.pop("metadata", {})}  # fmt: skip
    if index is not None:
        meta["annotations"] = {COMPLETION_INDEX: str(index)}
    return msgspec.convert(
        {"metadata": meta, "spec": parts.pop("spec", {}), "status": {"phase": phase, **parts}}, Pod
    )


def view_of(job: Job, *pods: Pod) -> View:
    return View(job, pods, frozenset(), Failures(), NOW)


def ended(name: str, seconds: float | None) -> dict[str, Any]:
    finished = {} if seconds is None else {"finishedAt": ago(seconds)}
    return {"name": name, "state": {"terminated": {"exitCode": 1, **finished}}}


SIDECAR: dict[str, Any] = {
    "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]
}
UNREADY: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": ago(30)}]
}


@pytest.mark.parametrize(
    ("pod", "seconds_ago"),
    [
        (pod_of(containerStatuses=[ended("a", 9), ended("b", 5)]), 5),
        (pod_of(containerStatuses=[ended("a", 9)], spec=SIDECAR,
                initContainerStatuses=[ended("i", 2), ended("s", 4)]), 4),
        # Not all have ended, or it is not known when.
        (pod_of(containerStatuses=[ended("a", 9), {"name": "b"}], **UNREADY), 30),
        (pod_of(containerStatuses=[ended("a", None)], **UNREADY), 30),
        (pod_of(**UNREADY, metadata={"deletionTimestamp": ago(1)}), 30),
        (pod_of(metadata={"deletionTimestamp": ago(1), "deletionGracePeriodSeconds": 9}), 10),
        (pod_of(metadata={"deletionTimestamp": ago(1)}), 1),
        (pod_of(conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": ago(3)}]),
         500),
    ],
)  # fmt: skip
def test_a_pod_ends_with_its_last_container_or_at_a_guess(pod: Pod, seconds_ago: int) -> None:
    assert finish_time(pod) == NOW - timedelta(seconds=seconds_ago)


def failed_at(*seconds: float) -> list[Pod]:
    return [pod_of("Failed", containerStatuses=[ended("a", second)]) for second in seconds]


@pytest.mark.parametrize(
    ("before", "succeeded", "failed", "count", "last"),
    [
        (Failures(3, NOW), (), (), 3, 0),
        (Failures(), (), (5, 9), 2, 5),
        (Failures(3, NOW), (), (5,), 4, 5),
        (Failures(3, NOW), (4,), (), 0, None),
        (Failures(3, NOW), (7, 8), (5, 6, 7, 9), 2, 5),
    ],
)
def test_failures_count_since_the_last_success(
    before: Failures, succeeded: tuple[float, ...], failed: tuple[float, ...], count: int,
    last: float | None,
) -> None:  # fmt: skip
    after = before.after(failed_at(*succeeded), failed_at(*failed))
    assert after == Failures(count, None if last is None else NOW - timedelta(seconds=last))


@pytest.mark.parametrize(("count", "pause_s"), [(1, 10), (2, 20), (6, 320), (7, 600), (1000, 600)])
def test_the_pause_doubles_up_to_ten_minutes(count: int, pause_s: float) -> None:
    record = Failures(count, NOW)
    assert record.seconds_left(NOW) == pause_s
    assert record.seconds_left(NOW + timedelta(seconds=pause_s - 1)) == 1
    assert record.seconds_left(NOW + timedelta(seconds=pause_s + 1)) == 0


def test_an_index_without_failures_does_not_wait() -> None:
    assert index_seconds_left(None, NOW) == 0
    assert index_seconds_left(failed_at(4)[0], NOW) == 6


@pytest.mark.parametrize(
    ("rule", "succeeded", "is_met"),
    [
        ({"succeededCount": 2}, {1, 9}, True),
        ({"succeededCount": 3}, {1, 9}, False),
        ({"succeededIndexes": "1-3"}, {0, 1, 2, 3}, True),
        ({"succeededIndexes": "1-3"}, {1, 2, 4, 5}, False),
        ({"succeededIndexes": "1-3", "succeededCount": 2}, {2, 3}, True),
        ({"succeededIndexes": "1-3", "succeededCount": 2}, {3, 4}, False),
        ({"succeededIndexes": "1,3,5-7", "succeededCount": 4}, {1, 5, 6, 7, 8}, True),
        # Completions were lowered to ten since.
        ({"succeededIndexes": "8-12"}, {8, 9}, True),
        ({"succeededIndexes": "12"}, {8, 9}, False),
        ({}, {1}, False),
    ],
)
def test_success_rules(rule: dict[str, Any], succeeded: set[int], is_met: bool) -> None:
    policy = msgspec.convert({"rules": [{"succeededCount": 99}, rule]}, SuccessPolicy)
    assert matched_rule(policy, 10, merged((), succeeded)) == (1 if is_met else None)
    assert matched_rule(None, 10, [(0, 1)]) is None
    assert matched_rule(policy, 10, []) is None


@pytest.mark.parametrize(
    ("text", "index"), [("0", 0), ("7", 7), ("-1", None), ("x", None), ("9999999999", None)]
)
def test_an_index_that_is_no_number_is_none(text: str, index: int | None) -> None:
    assert completion_index(pod_of(metadata={"annotations": {COMPLETION_INDEX: text}})) == index
    assert completion_index(pod_of()) is None


@pytest.mark.parametrize(
    ("phase", "is_deleting", "policy", "failed"),
    [
        ("Failed", False, None, True),
        ("Running", True, None, True),
        ("Running", True, "Failed", False),
        ("Failed", True, "Failed", True),
        ("Succeeded", True, None, False),
        ("Running", False, None, False),
    ],
)
def test_failed_pods(phase: str, is_deleting: bool, policy: str | None, failed: bool) -> None:
    meta = {"deletionTimestamp": ago(1)} if is_deleting else {}
    spec = JobSpec(pod_replacement_policy=policy)
    assert has_failed(pod_of(phase, metadata=meta), spec) == failed


def test_restarts_of_ended_pods_do_not_count() -> None:
    statuses: dict[str, Any] = {"containerStatuses": [{"name": "c", "restartCount": 3}]}
    pods = [pod_of(phase, **statuses) for phase in ("Running", "Pending", "Failed")]
    assert restarts(pods) == 6


def test_a_long_name_leaves_room_for_the_suffix_of_the_server() -> None:
    job = msgspec.convert({"metadata": {"name": "n" * 63}, "spec": {}}, Job)
    assert job_pod(job, 12, None)["metadata"]["generateName"] == "n" * 54 + "-12-"


def test_a_variable_of_the_users_own_is_kept_and_a_finalizer_not_doubled() -> None:
    own: list[dict[str, Any]] = [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]
    template: dict[str, Any] = {
        "metadata": {"finalizers": [TRACKING_FINALIZER]},
        "spec": {"containers": [{"name": "c", "env": own}], "initContainers": [{"name": "i"}]},
    }
    body = job_pod(job_of(template=template), 0, None)
    assert body["metadata"]["finalizers"] == [TRACKING_FINALIZER]
    assert body["spec"]["containers"][0]["env"] == own
    assert body["spec"]["initContainers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert template["spec"]["initContainers"] == [{"name": "i"}]


@given(
    st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.integers(0, 12), st.integers(0, 12)
)
def test_pending_indexes_are_the_lowest_that_are_free(
    succeeded: set[int], running: set[int], completions: int, parallelism: int
) -> None:
    running = {index for index in running if index < completions} - succeeded
    job = job_of(
        {"completedIndexes": ",".join(map(str, sorted(succeeded)))},
        completionMode="Indexed", completions=completions, parallelism=parallelism,
    )  # fmt: skip
    done = {index for index in succeeded if index < completions}
    plan = make_plan(view_of(job, *(pod_of(index=index) for index in running)))
    wanted = min(parallelism, completions - len(done))
    free = [index for index in range(completions) if index not in done | running]
    assert plan.creations == tuple(free[: max(0, wanted - len(running))])
    assert len(plan.deletions) == max(0, len(running) - wanted)


def test_one_reconcile_counts_five_hundred_pods() -> None:
    pods = [pod_of("Succeeded", metadata={"uid": f"u{index}"}) for index in range(501)]
    view = view_of(job_of(completions=600, parallelism=600), *pods)
    tracking = track(view, view.job.status, None)
    assert len(tracking.released) == 500
    assert not tracking.is_whole
    assert tracking.status.uncounted_terminated_pods is not None
    assert len(tracking.status.uncounted_terminated_pods.succeeded) == 500


def test_a_condition_that_says_the_same_keeps_its_time() -> None:
    condition = new_condition("A", "r", "m", NOW)
    later = new_condition("A", "r", "m", NOW + timedelta(seconds=5))
    other = new_condition("B", "r", "m", NOW)
    conditions = (condition, other)
    assert with_condition(conditions, later) is conditions
    changed = new_condition("A", "r", "n", NOW)
    assert with_condition(conditions, changed) == (changed, other)
    never = new_condition("C", "r", "m", NOW, "False")
    assert with_condition(conditions, never) is conditions


@pytest.mark.parametrize(
    ("ttl", "condition", "deleted", "is_limited"),
    [
        (5, {"type": "Complete", "status": "True", "lastTransitionTime": ago(3)}, False, True),
        (0, {"type": "Failed", "status": "True", "lastTransitionTime": ago(3)}, False, True),
        (None, {"type": "Failed", "status": "True", "lastTransitionTime": ago(3)}, False, False),
        (5, {"type": "Failed", "status": "True"}, False, False),
        (5, {"type": "Complete", "status": "False", "lastTransitionTime": ago(3)}, False, False),
        (5, {"type": "Complete", "status": "True", "lastTransitionTime": ago(3)}, True, False),
    ],
)
def test_expiry(
    ttl: int | None, condition: dict[str, Any], deleted: bool, is_limited: bool
) -> None:
    meta = {"deletionTimestamp": ago(1)} if deleted else {}
    job = msgspec.convert(
        {"metadata": meta, "spec": {"ttlSecondsAfterFinished": ttl},
         "status": {"conditions": [condition]}}, Job,
    )  # fmt: skip
    expected = NOW + timedelta(seconds=(ttl or 0) - 3)
    assert expiry_time(job) == (expected if is_limited else None)
