"""ResourceQuotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, update_complaint

KIND = "ResourceQuota"
STRATEGY = KINDS[KIND].strategy
AT = "spec.scopeSelector.matchExpressions"


def hard(**amounts: str) -> dict[str, Any]:
    return {"spec.hard": amounts}


def selector(scope: str, operator: str, *values: str, **amounts: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"scopeName": scope, "operator": operator}
    if values:
        expression["values"] = list(values)
    return {
        "spec.scopeSelector": {"matchExpressions": [expression]},
        "spec.hard": amounts or {"pods": "1"},
    }


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (hard(pods="1", cpu="1", memory="1Gi"), None),
        ({"spec.hard": {"requests.storage": "1Gi", "limits.cpu": "2", "count/widgets.x.io": "3",
                        "requests.x.io/gpu": "1", "hugepages-2Mi": "4Mi",
                        "requests.hugepages-2Mi": "4Mi",
                        "gold.storageclass.storage.k8s.io/requests.storage": "5Gi"}}, None),
        (hard(storage="1Gi"),
         'spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota'),
        (hard(widgets="1"),
         '[spec.hard[widgets]: Invalid value: "widgets": must be a standard resource type or fully '
         'qualified, spec.hard[widgets]: Invalid value: "widgets": must be a standard resource for '
         "quota]"),
        (hard(pods="-1"),
         'spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0'),
        (hard(pods="500m"), 'spec.hard[pods]: Invalid value: "500m": must be an integer'),
        ({**hard(pods="1"), "spec.scopes": ["Terminating"]}, None),
        ({**hard(pods="1"), "spec.scopes": ["Sometimes"]},
         'spec.scopes: Invalid value: ["Sometimes"]: unsupported scope'),
        ({**hard(cpu="1", services="1"), "spec.scopes": ["BestEffort"]},
         'spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'),
        ({**hard(pods="1"), "spec.scopes": ["BestEffort", "NotBestEffort"]},
         'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes'),
        ({**hard(pods="1"), "spec.scopes": ["Terminating", "NotTerminating"]},
         'spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'),
        (selector("PriorityClass", "In", "high"), None),
        (selector("PriorityClass", "Exists"), None),
        (selector("VolumeAttributesClass", "In", "gold", persistentvolumeclaims="1"), None),
        (selector("PriorityClass", "In"),
         f"{AT}.values: Required value: must be at least one value when `operator` is 'In' or "
         "'NotIn' for scope selector"),
        (selector("PriorityClass", "Exists", "high"),
         f'{AT}.values: Invalid value: ["high"]: must be no value when `operator` is '
         "'Exist' or 'DoesNotExist' for scope selector"),
        (selector("PriorityClass", "Near"),
         f'{AT}.operator: Invalid value: "Near": not a valid selector operator'),
        (selector("BestEffort", "In", "x"),
         f"{AT}.operator: Invalid value: \"In\": must be 'Exists' when scope is any of"),
        (selector("Other", "Exists"),
         f'{AT}.scopeName: Invalid value: "Other": unsupported scope'),
        (selector("VolumeAttributesClass", "Exists", pods="1"),
         f'{AT}: Invalid value: {{"matchExpressions":[{{"scopeName":'
         '"VolumeAttributesClass","operator":"Exists"}]}: unsupported scope applied to resource'),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    if says is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert says in refusal


def test_conflicting_scopes_of_a_selector() -> None:
    expressions = [
        {"scopeName": scope, "operator": "Exists"} for scope in ("BestEffort", "NotBestEffort")
    ]
    body = changed(
        KIND, {"spec.hard": {"pods": "1"}, "spec.scopeSelector": {"matchExpressions": expressions}}
    )
    assert f"{AT}: Invalid value: null: conflicting scopes" in str(complaint(KIND, body))


def test_scopes_never_change() -> None:
    old = changed(KIND, {"spec.scopes": ["Terminating"]})
    new = changed(KIND, {"spec.scopes": ["NotTerminating"]})
    assert update_complaint(KIND, new, old) == (
        'spec.scopes: Invalid value: ["NotTerminating"]: field is immutable'
    )
    assert (
        update_complaint(KIND, changed(KIND, {"spec.hard": {"pods": "9"}}), changed(KIND)) is None
    )


def test_a_status_is_checked() -> None:
    status = {"hard": {"pods": "1"}, "used": {"pods": "-1"}}
    new = {**changed(KIND), "status": status}
    assert update_complaint(KIND, new, changed(KIND), "status") == (
        'status.used[pods]: Invalid value: "-1": must be greater than or equal to 0'
    )


@pytest.mark.parametrize(
    ("amounts", "warning"),
    [
        ({"requests.cpu": "2", "limits.cpu": "1"},
         "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"),
        ({"memory": "2Gi", "limits.memory": "1Gi"},
         "ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)"),
        ({"requests.ephemeral-storage": "2", "limits.ephemeral-storage": "1"},
         "ResourceQuota requests.ephemeral-storage (2) should be less than "
         "limits.ephemeral-storage (1)"),
        ({"ephemeral-storage": "2", "limits.ephemeral-storage": "1"}, None),
        ({"requests.cpu": "1", "limits.cpu": "1"}, None),
        ({"requests.cpu": "2"}, None),
    ],
)  # fmt: skip
def test_more_requests_than_limits_are_warned_about(
    amounts: dict[str, str], warning: str | None
) -> None:
    quota = changed(KIND, {"spec.hard": amounts})
    assert STRATEGY.warn(quota, None) == ([] if warning is None else [warning])
    assert STRATEGY.warn(quota, quota) == []


def test_row() -> None:
    assert columns(KIND) == "Name Request Limit Age |"
    status = {
        "hard": {"pods": "4", "limits.cpu": "2", "cpu": "1", "limits.memory": "1Gi"},
        "used": {"pods": "3", "limits.cpu": "500m"},
    }
    assert row(KIND, {"status": status}) == [
        "x", "cpu: 0/1, pods: 3/4", "limits.cpu: 500m/2, limits.memory: 0/1Gi", "90s"
    ]  # fmt: skip
