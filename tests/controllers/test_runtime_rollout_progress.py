"""How far a workload's pods have its template, by kind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moorage.api.jobs import Job
from moorage.api.workloads import DaemonSet, Deployment, StatefulSet
from moorage.controllers.runtimerollouts.observation import (
    of_cron_job,
    of_daemon_set,
    of_deployment,
    of_stateful_set,
)

_MOVED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
         "message": "timed out", "lastUpdateTime": "2026-01-01T00:10:00Z"}  # fmt: skip
_REFUSED = {"type": "ReplicaFailure", "status": "True", "message": "quota"}


def _read(kind: Any, spec: dict[str, Any], status: dict[str, Any]) -> Any:
    status = {"observedGeneration": 2, **status}
    return msgspec.convert({"metadata": {"generation": 2}, "spec": spec, "status": status}, kind)


def _counts(replicas: int, updated: int, available: int) -> dict[str, Any]:
    return {
        "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "status", "is_settled", "hold", "fault", "note"),
    [
        ({"replicas": 2}, _counts(2, 2, 2), True, "", "", ""),
        ({}, _counts(1, 1, 1), True, "", "", ""),
        ({"replicas": 0}, _counts(0, 0, 0), True, "", "", ""),
        ({"replicas": 2}, _counts(3, 2, 3), False, "", "", ""),
        ({"replicas": 2}, _counts(2, 2, 1), False, "", "", ""),
        ({"replicas": 2}, {**_counts(2, 2, 2), "observedGeneration": 1}, False, "", "", ""),
        ({"replicas": 2, "paused": True}, _counts(2, 0, 2), True, "paused", "", ""),
        ({"replicas": 2, "paused": True}, _counts(2, 2, 2), True, "", "", ""),
        ({}, {**_counts(2, 1, 1), "conditions": [_LATE]}, False, "", "timed out", ""),
        ({}, {**_counts(1, 0, 1), "conditions": [_REFUSED]}, False, "", "", "quota"),
    ],
)
def test_deployments(
    spec: dict[str, Any], status: dict[str, Any], is_settled: bool, hold: str, fault: str, note: str
) -> None:
    progress = of_deployment(_read(Deployment, spec, status), _MOVED_AT)
    assert (progress.is_settled, progress.fault, progress.note) == (is_settled, fault, note)
    assert hold in progress.hold
    assert bool(hold) == bool(progress.hold)


def test_a_deadline_that_passed_before_the_move_is_no_fault() -> None:
    late = _LATE | {"lastUpdateTime": "2025-12-31T00:00:00Z"}
    deployment = _read(Deployment, {}, {**_counts(1, 0, 0), "conditions": [late]})
    assert of_deployment(deployment, _MOVED_AT).fault == ""


@pytest.mark.parametrize(
    ("strategy", "status", "is_settled", "is_held"),
    [
        ({}, _counts(3, 3, 3), True, False),
        ({}, _counts(3, 2, 3), False, False),
        ({"type": "OnDelete"}, _counts(3, 0, 3), True, True),
        ({"type": "OnDelete"}, _counts(3, 3, 3), True, False),
        ({"rollingUpdate": {"partition": 2}}, _counts(3, 1, 3), True, True),
        ({"rollingUpdate": {"partition": 2}}, _counts(3, 0, 3), False, True),
        ({"rollingUpdate": {"partition": 2}}, _counts(3, 3, 3), True, False),
        ({"rollingUpdate": {"partition": 9}}, _counts(3, 0, 3), True, True),
    ],
)
def test_stateful_sets(
    strategy: dict[str, Any], status: dict[str, Any], is_settled: bool, is_held: bool
) -> None:
    spec = {"replicas": 3, "updateStrategy": strategy}
    progress = of_stateful_set(_read(StatefulSet, spec, status), _MOVED_AT)
    assert (progress.is_settled, bool(progress.hold)) == (is_settled, is_held)


@pytest.mark.parametrize(
    ("strategy", "updated", "available", "is_settled", "is_held"),
    [
        ("RollingUpdate", 4, 4, True, False),
        ("RollingUpdate", 3, 4, False, False),
        ("RollingUpdate", 4, 3, False, False),
        ("OnDelete", 0, 4, True, True),
        ("OnDelete", 4, 4, True, False),
    ],
)
def test_daemon_sets(
    strategy: str, updated: int, available: int, is_settled: bool, is_held: bool
) -> None:
    status = {"desiredNumberScheduled": 4, "updatedNumberScheduled": updated,
              "numberAvailable": available}  # fmt: skip
    daemon_set = _read(DaemonSet, {"updateStrategy": {"type": strategy}}, status)
    progress = of_daemon_set(daemon_set, _MOVED_AT)
    assert (progress.size, progress.is_settled, bool(progress.hold)) == (4, is_settled, is_held)


def test_what_will_be_held_is_known_before_the_move() -> None:
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    held = (
        of_deployment(_read(Deployment, {"paused": True}, _counts(1, 1, 1)), None),
        of_stateful_set(_read(StatefulSet, on_delete, _counts(1, 1, 1)), None),
        of_daemon_set(_read(DaemonSet, on_delete, {"updatedNumberScheduled": 1}), None),
    )
    assert all(progress.hold for progress in held)


def _job(name: str, created: str, condition: str) -> Job:
    return msgspec.convert(
        {
            "metadata": {"name": name, "creationTimestamp": created},
            "status": {"conditions": [{"type": condition, "status": "True", "message": "why"}]},
        },
        Job,
    )


def test_a_cron_job_has_failed_if_its_latest_job_since_the_move_has() -> None:
    old = _job("old", "2025-12-31T00:00:00Z", "Failed")
    bad = _job("bad", "2026-01-01T01:00:00Z", "Failed")
    good = _job("good", "2026-01-01T02:00:00Z", "Complete")
    assert of_cron_job([old], _MOVED_AT).fault == ""
    assert of_cron_job([old, bad], _MOVED_AT).fault == "Job bad failed: why"
    assert of_cron_job([bad, good], _MOVED_AT).fault == ""
    assert of_cron_job([bad], None).fault == ""
