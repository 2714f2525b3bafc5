from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from moorage.api.workloads import DeploymentCondition, DeploymentStatus, ReplicaSetCondition
from moorage.controllers.deployments import progress
from moorage.controllers.deployments.sets import SetsOf
from tests.controllers.objects import NOW, ago, deployment, replica_set


def progressing(
    reason: str, status: str = "True", *, updated: float = 30, since: float = 60
) -> DeploymentCondition:
    return DeploymentCondition(
        type="Progressing",
        status=status,
        reason=reason,
        last_update_time=ago(updated),
        last_transition_time=ago(since),
    )


def verdict(status: DeploymentStatus) -> DeploymentCondition | None:
    return progress.find(status.conditions, "Progressing")


ROLLED_OUT = SetsOf(replica_set("new", 3), (replica_set("old", 0),))
HALF_WAY = SetsOf(replica_set("new", 2, available=1), (replica_set("old", 2),))


def test_counts_are_sums_over_the_sets() -> None:
    status = progress.observed_status(deployment(3), HALF_WAY, NOW)
    assert (status.replicas, status.updated_replicas) == (4, 2)
    assert (status.ready_replicas, status.available_replicas) == (3, 3)
    assert (status.unavailable_replicas, status.terminating_replicas) == (1, 0)
    assert status.observed_generation == 1


@pytest.mark.parametrize(
    ("available", "status", "reason"),
    [(3, "True", "MinimumReplicasAvailable"), (2, "False", "MinimumReplicasUnavailable")],
)
def test_availability(available: int, status: str, reason: str) -> None:
    sets = SetsOf(replica_set("new", 4, available=available), ())
    result = progress.observed_status(deployment(4), sets, NOW).conditions[0]
    assert (result.type, result.status, result.reason) == ("Available", status, reason)


def test_a_complete_rollout_has_its_new_set_available() -> None:
    before = DeploymentStatus(conditions=(progressing("ReplicaSetUpdated"),))
    rollout = verdict(progress.rollout_status(deployment(3, status=before), ROLLED_OUT, NOW))
    assert rollout is not None
    assert (rollout.status, rollout.reason) == ("True", "NewReplicaSetAvailable")
    assert rollout.message == 'ReplicaSet "new" has successfully progressed.'
    assert (rollout.last_update_time, rollout.last_transition_time) == (ago(0), ago(60))


def test_every_step_renews_the_time_that_the_deadline_counts_from() -> None:
    before = DeploymentStatus(
        replicas=4, updated_replicas=1, conditions=(progressing("ReplicaSetUpdated", updated=500),)
    )
    rollout = verdict(progress.rollout_status(deployment(3, status=before), HALF_WAY, NOW))
    assert rollout is not None
    assert (rollout.reason, rollout.last_update_time) == ("ReplicaSetUpdated", ago(0))
    assert rollout.last_transition_time == ago(60)


def standing_still(updated: float) -> DeploymentStatus:
    status = progress.observed_status(deployment(3), HALF_WAY, NOW)
    conditions = (progressing("ReplicaSetUpdated", updated=updated), *status.conditions)
    return msgspec.structs.replace(status, conditions=conditions)


@pytest.mark.parametrize(
    ("updated", "reason", "status"),
    [
        (599, "ReplicaSetUpdated", "True"),
        (600, "ReplicaSetUpdated", "True"),
        (601, "ProgressDeadlineExceeded", "False"),
    ],
)
def test_stalled_rollout_exceeds_its_deadline(updated: float, reason: str, status: str) -> None:
    stuck = deployment(3, status=standing_still(updated))
    rollout = verdict(progress.rollout_status(stuck, HALF_WAY, NOW))
    assert rollout is not None
    assert (rollout.reason, rollout.status) == (reason, status)


def test_the_deadline_is_an_appointment() -> None:
    status = standing_still(590)
    stuck = deployment(3, status=status)
    wait_s = progress.seconds_to_deadline(stuck, status, NOW)
    assert wait_s == 11
    later = NOW + timedelta(seconds=wait_s)
    rollout = verdict(progress.rollout_status(stuck, HALF_WAY, later))
    assert rollout is not None
    assert rollout.reason == "ProgressDeadlineExceeded"


def test_no_deadline_no_verdict() -> None:
    status = standing_still(10)
    patient = deployment(3, status=status, deadline=None)
    assert verdict(progress.rollout_status(patient, HALF_WAY, NOW)) is None
    assert progress.seconds_to_deadline(patient, status, NOW) is None


def test_a_scale_after_a_finished_rollout_is_not_a_rollout() -> None:
    done = DeploymentStatus(
        replicas=3, updated_replicas=3, conditions=(progressing("NewReplicaSetAvailable"),)
    )
    status = progress.rollout_status(
        deployment(5, status=done), SetsOf(replica_set("new", 5, available=3), ()), NOW
    )
    rollout = verdict(status)
    assert rollout is not None
    assert rollout.reason == "NewReplicaSetAvailable"


def test_a_sets_failure_is_the_deployments() -> None:
    failure = ReplicaSetCondition(
        type="ReplicaFailure", status="True", reason="FailedCreate", message="quota"
    )
    new = replica_set("new", 0)
    new = msgspec.structs.replace(
        new, status=msgspec.structs.replace(new.status, conditions=(failure,))
    )
    status = progress.rollout_status(deployment(3), SetsOf(new, ()), NOW)
    condition = progress.find(status.conditions, "ReplicaFailure")
    assert condition is not None
    assert (condition.reason, condition.message) == ("FailedCreate", "quota")
    over = deployment(3, status=status)
    healed = progress.rollout_status(over, SetsOf(replica_set("new", 0), ()), NOW)
    assert progress.find(healed.conditions, "ReplicaFailure") is None


def test_pause_and_resumption_are_reported() -> None:
    running = DeploymentStatus(conditions=(progressing("ReplicaSetUpdated"),))
    paused = progress.pause_conditions(deployment(1, status=running, is_paused=True), NOW)
    assert paused is not None
    assert (paused[0].status, paused[0].reason) == ("Unknown", "DeploymentPaused")
    held = DeploymentStatus(conditions=paused)
    assert progress.pause_conditions(deployment(1, status=held, is_paused=True), NOW) is None
    resumed = progress.pause_conditions(deployment(1, status=held), NOW)
    assert resumed is not None
    assert resumed[0].reason == "DeploymentResumed"
