"""ReplicationControllers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "ReplicationController"
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"


def test_selector_and_labels_are_those_of_the_template() -> None:
    obj = decoded(KINDS[KIND], changed(KIND, {}, "spec.selector"))
    assert obj["metadata"]["labels"] == {"a": "b"}
    assert obj["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    del obj["spec"]["template"]
    assert obj["spec"] == {"replicas": 1, "selector": {"a": "b"}}


def test_given_selector_and_labels_are_kept() -> None:
    labels, selector = {"own": "1"}, {"a": "b"}
    sets = {
        "metadata.labels": labels,
        "spec.selector": selector,
        "spec.template.metadata.labels": {"a": "b", "c": "d"},
        "spec.replicas": 0,
    }
    obj = decoded(KINDS[KIND], changed(KIND, sets))
    assert obj["metadata"]["labels"] == labels
    assert obj["spec"]["selector"] == selector
    assert obj["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("sets", "drops", "says"),
    [
        ({"spec.template.metadata": {}}, ("spec.selector",), "spec.selector: Required value"),
        ({}, ("spec.template",), "spec.template: Required value"),
        ({"spec.selector": {"x": "y"}}, (),
         'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match '
         "template `labels`"),
        ({"spec.template.spec.restartPolicy": "Never"}, (),
         'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: '
         '"Always"'),
        ({"spec.template.spec.activeDeadlineSeconds": 5}, (),
         "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in "
         "ReplicationController is not Supported"),
        ({"spec.template.spec.containers": []}, (),
         "spec.template.spec.containers: Required value"),
        ({"spec.replicas": -1, "spec.minReadySeconds": -1}, (),
         f"[spec.replicas: {NEGATIVE}, spec.minReadySeconds: {NEGATIVE}]"),
    ],
)  # fmt: skip
def test_creation_and_update(sets: dict[str, Any], drops: tuple[str, ...], says: str) -> None:
    obj = changed(KIND, sets, *drops)
    error = complaint(KIND, obj)
    assert error is not None
    assert error.partition(" is invalid: ")[2] == says
    assert update_complaint(KIND, obj, changed(KIND)) == says


def test_the_selector_may_change() -> None:
    sets = {"spec.selector": {"x": "y"}, "spec.template.metadata.labels": {"x": "y"}}
    assert update_complaint(KIND, changed(KIND, sets), changed(KIND)) is None


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"replicas": 3, "readyReplicas": 2, "availableReplicas": 2}, None),
        ({"replicas": 1, "fullyLabeledReplicas": 2},
         "status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"),
        ({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2},
         "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"),
        ({"replicas": 1, "readyReplicas": -1, "availableReplicas": -1},
         f"[status.readyReplicas: {NEGATIVE}, status.availableReplicas: {NEGATIVE}]"),
        ({"observedGeneration": -1}, f"status.observedGeneration: {NEGATIVE}"),
    ],
)  # fmt: skip
def test_status(status: dict[str, Any], says: str | None) -> None:
    new = changed(KIND, {"status": status})
    assert update_complaint(KIND, new, changed(KIND), "status") == says


def test_a_name_that_no_host_can_have_is_warned_about() -> None:
    obj = decoded(KINDS[KIND], changed(KIND, {"metadata.name": "a.b"}))
    warn = KINDS[KIND].strategy.warn
    assert warn(obj, None) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        "behavior; a DNS label is recommended: [must not contain dots]"
    ]
    assert warn(obj, obj) == []


def test_row() -> None:
    fields = {
        "spec": {**WORKLOAD, "selector": {"b": "2", "a": "1"}},
        "status": {"replicas": 3, "readyReplicas": 2},
    }
    assert row(KIND, fields) == ["x", 3, 3, 2, "90s", "a,b", "i:1,j", "a=1,b=2"]


def test_columns() -> None:
    assert columns(KIND) == "Name Desired Current Ready Age | Containers Images Selector"
