"""DaemonSets."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import BadRequestError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.apps import TEMPLATE_GENERATION
from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    changes,
    creations,
    decoded,
    update_complaint,
)

KIND = "DaemonSet"
STRATEGY = KINDS[KIND].strategy
ROLLING = "spec.updateStrategy.rollingUpdate"
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
MISMATCH = (
    'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template '
    "`labels`"
)
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)


def daemon_set(sets: dict[str, Any] | None = None, generation: str = "") -> Obj:
    obj = decoded(KINDS[KIND], changed(KIND, sets))
    if generation:
        obj["metadata"]["annotations"] = {TEMPLATE_GENERATION: generation}
    return obj


def generation_of(obj: Obj) -> str:
    return str(obj["metadata"]["annotations"][TEMPLATE_GENERATION])


def test_defaults() -> None:
    spec = daemon_set()["spec"]
    assert spec.pop("template")["spec"]["dnsPolicy"] == "ClusterFirst"
    assert spec == {
        "selector": {"matchLabels": {"a": "b"}},
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
        "revisionHistoryLimit": 10,
    }
    spec = daemon_set({"spec.updateStrategy.type": "OnDelete"})["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}


test_creation = creations(KIND, is_exact=True, cases=[
    ({"spec.selector": None}, MISMATCH),
    ({"spec.selector": {}},
     "spec.selector: Invalid value: {}: empty selector is invalid for daemonset"),
    ({"spec.selector.matchLabels": {"x": "y"}}, MISMATCH),
    ({"spec.selector": {"matchExpressions": [{"key": "a", "operator": "X"}]}},
     'spec.selector.matchExpressions[0].operator: Invalid value: "X": not a valid selector '
     "operator"),
    ({"spec.template.spec.restartPolicy": "Never"},
     'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: '
     '"Always"'),
    ({"spec.template.spec.activeDeadlineSeconds": 5},
     "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in "
     "DaemonSet is not Supported"),
    ({"spec.minReadySeconds": -1}, f"spec.minReadySeconds: {NEGATIVE}"),
    ({"spec.revisionHistoryLimit": -1}, f"spec.revisionHistoryLimit: {NEGATIVE}"),
    ({"spec.updateStrategy": {"type": "X", "rollingUpdate": {"maxSurge": 1}}},
     'spec.updateStrategy: Unsupported value: {"Type":"X","RollingUpdate":{"MaxUnavailable":0,'
     '"MaxSurge":1}}: supported values: "RollingUpdate", "OnDelete"'),
    ({ROLLING: {"maxUnavailable": -1}}, f"{ROLLING}.maxUnavailable: {NEGATIVE}"),
    ({ROLLING: {"maxUnavailable": "x"}},
     f'[{ROLLING}.maxUnavailable: Invalid value: "x": {PERCENT}, {ROLLING}.maxUnavailable: '
     "Required value: cannot be 0 when maxSurge is 0]"),
    ({ROLLING: {"maxUnavailable": 0, "maxSurge": "101%"}},
     f'{ROLLING}.maxSurge: Invalid value: "101%": must not be greater than 100%'),
    ({ROLLING: {"maxUnavailable": "10%", "maxSurge": 1}},
     f"{ROLLING}.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"),
    ({ROLLING: {"maxUnavailable": "0%", "maxSurge": 0}},
     f"{ROLLING}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"),
])  # fmt: skip


test_update = changes(KIND, cases=[
    ({"spec.minReadySeconds": 3, "spec.template.spec.hostNetwork": True}, None),
    ({"spec.selector.matchLabels": {"x": "y"}, "spec.template.metadata.labels": {"x": "y"}},
     'spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable'),
    ({"spec.minReadySeconds": -1}, f"spec.minReadySeconds: {NEGATIVE}"),
])  # fmt: skip


@pytest.mark.parametrize(("sent", "kept"), [("", "1"), ("-3", "1"), ("7", "7"), ("+7", "7")])
def test_a_new_object_has_the_first_template_or_the_one_it_states(sent: str, kept: str) -> None:
    obj = daemon_set(generation=sent)
    STRATEGY.prepare_create(obj)
    assert generation_of(obj) == kept


@pytest.mark.parametrize(
    ("sets", "kept"),
    [
        ({}, "4"),
        ({"spec.minReadySeconds": 3}, "4"),
        ({"spec.template.spec.hostNetwork": True}, "5"),
    ],
)
def test_a_changed_template_is_counted(sets: dict[str, Any], kept: str) -> None:
    new = daemon_set(sets, "99")
    STRATEGY.prepare_update(new, daemon_set(generation="4"))
    assert generation_of(new) == kept


def test_a_status_update_does_not_count() -> None:
    new = daemon_set({"spec.template.spec.hostNetwork": True}, "99")
    STRATEGY.parts["status"].prepare(new, daemon_set(generation="4"))
    assert generation_of(new) == "4"
    assert "hostNetwork" not in new["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("x", "invalid syntax"), ("", "invalid syntax"), ("9" * 19, "value out of range")],
)
def test_the_generation_of_a_template_is_a_number(text: str, problem: str) -> None:
    obj = changed(KIND, {"metadata.annotations": {TEMPLATE_GENERATION: text}})
    with pytest.raises(BadRequestError) as raised:
        decoded(KINDS[KIND], obj)
    assert raised.value.message == (
        'DaemonSet in version "v1" cannot be handled as a DaemonSet: strconv.ParseInt: parsing '
        f'"{text}": {problem}'
    )


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"desiredNumberScheduled": 3, "numberReady": 5}, None),
        ({"currentNumberScheduled": -1, "numberUnavailable": -1},
         f"[status.currentNumberScheduled: {NEGATIVE}, status.numberUnavailable: {NEGATIVE}]"),
        ({"observedGeneration": -1}, f"status.observedGeneration: {NEGATIVE}"),
    ],
)  # fmt: skip
def test_status(status: dict[str, Any], says: str | None) -> None:
    new = changed(KIND, {"status": status})
    assert update_complaint(KIND, new, changed(KIND), "status") == says


def test_a_collision_is_counted_up_only() -> None:
    new, old = (
        changed(KIND, {"status.collisionCount": 1}),
        changed(KIND, {"status.collisionCount": 2}),
    )
    assert update_complaint(KIND, new, old, "status") == (
        "status.collisionCount: Invalid value: 1: cannot be decremented"
    )


def test_row() -> None:
    status = {
        "desiredNumberScheduled": 5,
        "currentNumberScheduled": 4,
        "numberReady": 3,
        "updatedNumberScheduled": 2,
        "numberAvailable": 1,
    }
    cells = row(KIND, {"spec": WORKLOAD, "status": status})
    assert cells == ["x", 5, 4, 3, 2, 1, "<none>", "90s", "a,b", "i:1,j", "app=w"]


def test_columns() -> None:
    assert columns(KIND) == (
        "Name Desired Current Ready Up-to-date Available Node_Selector Age | Containers Images "
        "Selector"
    )
