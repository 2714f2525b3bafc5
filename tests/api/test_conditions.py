"""Conditions by type, and the time of their transitions."""

from __future__ import annotations

import pytest

from moorage.api.conditions import is_true, transitioned
from moorage.api.meta import Condition

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"


@pytest.mark.parametrize(
    ("before", "since"),
    [
        ((), NOW),
        ((Condition(type="Ready", status="True", last_transition_time=EARLIER),), EARLIER),
        ((Condition(type="Ready", status="False", last_transition_time=EARLIER),), NOW),
        ((Condition(type="Ready", status="True"),), NOW),
        ((Condition(type="Other", status="True", last_transition_time=EARLIER),), NOW),
    ],
)
def test_the_transition_time_changes_with_the_status(
    before: tuple[Condition, ...], since: str
) -> None:
    new = transitioned(
        before, "Ready", holds=True, reason="Done", message="all", stamp=NOW, generation=3
    )
    assert new == Condition(
        type="Ready", status="True", observed_generation=3, last_transition_time=since,
        reason="Done", message="all",
    )  # fmt: skip
    assert is_true([new], "Ready")
