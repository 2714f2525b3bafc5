"""Small rules that larger loops rest on, each at its edges."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from moorage.api.pods import PodCondition
from moorage.api.workloads import DeploymentCondition, DeploymentStatus
from moorage.controllers.deployments import progress
from moorage.controllers.deployments.revisions import expired_sets
from moorage.controllers.deployments.rolling import resize, round_half_away
from moorage.controllers.deployments.sets import SetsOf
from moorage.controllers.pods import is_ready, ready_condition, ready_since
from moorage.controllers.templates import scaled
from tests.controllers.objects import NOW, ago, deployment, pod, replica_set


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 0), (0.4, 0), (0.5, 1), (1.5, 2), (2.5, 3), (-0.4, 0), (-0.5, -1), (-1.5, -2), (3.0, 3)],
)
def test_halves_go_away_from_zero(value: float, expected: int) -> None:
    assert round_half_away(value) == expected


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"),
    [
        (None, 10, True, 0), (None, 10, False, 0), (3, 10, True, 3), (0, 10, True, 0),
        ("25%", 10, True, 3), ("25%", 10, False, 2), ("100%", 3, True, 3), ("0%", 3, True, 0),
        ("25%", 0, True, 0), ("25%", 4, True, 1), ("25%", 4, False, 1),
    ],
)  # fmt: skip
def test_bounds_are_counts_or_shares(
    value: int | str | None, total: int, up: bool, expected: int
) -> None:
    assert scaled(value, total, rounds_up=up) == expected


@pytest.mark.parametrize("value", ["3", "x%", "%", "25"])
def test_invalid_bound_is_rejected(value: str) -> None:
    with pytest.raises(ValueError, match=r"%|invalid|int"):
        scaled(value, 10, rounds_up=True)


@pytest.mark.parametrize(
    ("wanted", "status", "generation", "is_expired"),
    [(0, 0, 1, True), (1, 0, 1, False), (0, 1, 1, False), (0, 0, 2, False), (0, 0, 0, True)],
)
def test_only_sets_that_are_empty_and_know_it_expire(
    wanted: int, status: int, generation: int, is_expired: bool
) -> None:
    old = replica_set("old", 0)
    old = msgspec.structs.replace(
        old,
        metadata=msgspec.structs.replace(old.metadata, generation=generation),
        spec=msgspec.structs.replace(old.spec, replicas=wanted),
        status=msgspec.structs.replace(old.status, replicas=status),
    )
    assert expired_sets(deployment(1, history=0), [old]) == ([old] if is_expired else [])


def test_with_no_pods_anywhere_the_new_set_grows_or_else_the_latest() -> None:
    wanted = deployment(3)
    new = replica_set("new", 0, age=1)
    older, newer = replica_set("older", 0, age=9), replica_set("newer", 0, age=5)
    assert resize(wanted, SetsOf(new, (older, newer))) == {"new": 3}
    assert resize(wanted, SetsOf(None, (older, newer))) == {"newer": 3}
    assert resize(wanted, SetsOf(None, ())) == {}


def test_readiness_is_of_its_condition_among_others() -> None:
    ready = pod("a")
    other = PodCondition(type="Initialized", status="True", last_transition_time=ago(9999))
    for order in ((other, *ready.status.conditions), (*ready.status.conditions, other)):
        changed = msgspec.structs.replace(
            ready, status=msgspec.structs.replace(ready.status, conditions=order)
        )
        condition = ready_condition(changed)
        assert condition is not None
        assert condition.type == "Ready"
        assert is_ready(changed)
        assert ready_since(changed) == NOW - timedelta(seconds=3600)
    only = msgspec.structs.replace(
        ready, status=msgspec.structs.replace(ready.status, conditions=(other,))
    )
    assert ready_condition(only) is None
    assert not is_ready(only)
    assert ready_since(only) is None


@pytest.mark.parametrize(
    ("reason", "updated_s", "is_late"),
    [
        (progress.DEADLINE_EXCEEDED, 1, True),
        (progress.SET_UPDATED, 601, True),
        (progress.SET_UPDATED, 600, False),
        (progress.SET_UPDATED, 1, False),
        (progress.NEW_SET_AVAILABLE, 9999, False),
    ],
)
def test_a_rollout_that_was_late_stays_late_until_it_moves(
    reason: str, updated_s: float, is_late: bool
) -> None:
    status = "False" if reason == progress.DEADLINE_EXCEEDED else "True"
    shown = DeploymentCondition(
        type=progress.PROGRESSING, status=status, reason=reason,
        last_update_time=ago(updated_s), last_transition_time=ago(updated_s),
    )  # fmt: skip
    before = DeploymentStatus(
        observed_generation=1, replicas=3, updated_replicas=1, conditions=(shown,)
    )
    new, old = replica_set("new", 1, available=0), replica_set("old", 2, available=0)
    of = deployment(3, status=before, deadline=600)
    condition = progress.find(
        progress.rollout_status(of, SetsOf(new, (old,)), NOW).conditions, progress.PROGRESSING
    )
    assert condition is not None
    assert (condition.reason == progress.DEADLINE_EXCEEDED) is is_late
