"""PodDisruptionBudgets."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "PodDisruptionBudget"
STRATEGY = KINDS[KIND].strategy
BETA = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
WRONG_VALUE = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({"spec.minAvailable": 0}, None),
        ({"spec.minAvailable": "0%"}, None),
        ({"spec.minAvailable": "100%"}, None),
        ({"spec.minAvailable": -1},
         "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
        ({"spec.minAvailable": "half"}, f'spec.minAvailable: Invalid value: "half": {PERCENT}'),
        ({"spec.minAvailable": "101%"},
         'spec.minAvailable: Invalid value: "101%": must not be greater than 100%'),
        ({"spec.maxUnavailable": 1},
         'spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},'
         '"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: minAvailable and '
         "maxUnavailable cannot be both set"),
        ({"spec.selector": {"matchExpressions": [{"key": "a", "operator": "X"}]}},
         'spec.selector.matchExpressions[0].operator: Invalid value: "X": not a valid selector '
         "operator"),
        ({"spec.unhealthyPodEvictionPolicy": "Never"},
         'spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: '
         '"AlwaysAllow", "IfHealthyBudget"'),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    if says is None:
        assert refusal is None
        return
    assert refusal == f'PodDisruptionBudget.policy "d" is invalid: {says}'


def test_the_maximum_is_checked_like_the_minimum() -> None:
    body = changed(KIND, {"spec.maxUnavailable": "200%"}, "spec.minAvailable")
    assert str(complaint(KIND, body)).endswith("must not be greater than 100%")


def test_a_selector_that_was_wrong_may_stay_so() -> None:
    old = changed(KIND, {"spec.selector": WRONG_VALUE})
    assert "values[0]" in str(complaint(KIND, old))
    new = changed(KIND, {"spec.selector": WRONG_VALUE, "spec.minAvailable": 2})
    assert update_complaint(KIND, new, old) is None
    assert "values[0]" in str(update_complaint(KIND, new, changed(KIND)))


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"disruptionsAllowed": 1, "expectedPods": 3}, None),
        ({"disruptionsAllowed": -1},
         "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"),
        ({"currentHealthy": -1},
         "status.currentHealthy: Invalid value: -1: must be greater than or equal to 0"),
        ({"desiredHealthy": -2},
         "status.desiredHealthy: Invalid value: -2: must be greater than or equal to 0"),
        ({"expectedPods": -3},
         "status.expectedPods: Invalid value: -3: must be greater than or equal to 0"),
        ({"conditions": [{"type": "A", "status": "True", "reason": "", "message": "",
                          "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
         "status.conditions[0].reason: Required value"),
    ],
)  # fmt: skip
def test_status_rules(status: dict[str, Any], says: str | None) -> None:
    new = {**changed(KIND), "status": status}
    assert update_complaint(KIND, new, changed(KIND), "status") == says


def test_a_new_budget_has_counts_of_zero_alone() -> None:
    budget = decoded(KINDS[KIND], {**changed(KIND), "status": {"disruptionsAllowed": 9}})
    STRATEGY.prepare_create(budget)
    assert budget["status"] == {
        "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0
    }  # fmt: skip


def test_requirements_that_the_beta_version_needed_are_dropped() -> None:
    beta = {"key": BETA, "operator": "DoesNotExist"}
    nothing = {"matchExpressions": [{"key": BETA, "operator": "Exists"}]}
    other = {"key": "a", "operator": "Exists"}
    for selector, kept in [
        ({"matchExpressions": [beta]}, {}),
        ({"matchExpressions": [other, beta]}, {"matchExpressions": [other]}),
        ({"matchLabels": {"a": "b"}, **nothing}, {"matchLabels": {"a": "b"}}),
        (nothing, nothing),
        ({}, {}),
    ]:
        old = decoded(KINDS[KIND], changed(KIND))
        new = decoded(KINDS[KIND], changed(KIND, {"spec.selector": copy.deepcopy(selector)}))
        created = copy.deepcopy(new)
        STRATEGY.prepare_create(created)
        STRATEGY.prepare_update(new, old)
        assert created["spec"]["selector"] == new["spec"]["selector"] == kept
    # An update that keeps the selector keeps it whole.
    same = decoded(KINDS[KIND], changed(KIND, {"spec.selector": {"matchExpressions": [beta]}}))
    STRATEGY.prepare_update(same, copy.deepcopy(same))
    assert same["spec"]["selector"] == {"matchExpressions": [beta]}


def test_row() -> None:
    assert columns(KIND) == "Name Min_Available Max_Unavailable Allowed_Disruptions Age |"
    assert row(KIND, {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}}) == [
        "x", "50%", "N/A", 2, "90s"
    ]  # fmt: skip
    assert row(KIND, {"spec": {"maxUnavailable": 0}}) == ["x", "N/A", "0", 0, "90s"]
