"""StorageClasses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    creations,
    decoded,
    update_complaint,
)

KIND = "StorageClass"
TOPOLOGY = {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
TERMS = "allowedTopologies"


def test_defaults() -> None:
    storage_class = decoded(KINDS[KIND], changed(KIND))
    assert storage_class["reclaimPolicy"] == "Delete"
    assert storage_class["volumeBindingMode"] == "Immediate"
    assert "allowVolumeExpansion" not in storage_class


test_rules = creations(KIND, cases=[
    ({}, None),
    ({"provisioner": ""}, "provisioner: Required value"),
    ({"provisioner": "Example.com/Disk"}, None),
    ({"provisioner": "a b"}, 'provisioner: Invalid value: "a b": name part must consist of'),
    ({"parameters": {}}, None),
    ({"parameters": {"": "x"}}, 'parameters: Invalid value: "": field can not be empty.'),
    ({"parameters": {str(number): "" for number in range(512)}}, None),
    ({"parameters": {str(number): "" for number in range(513)}},
     "parameters: Too long: may not be more than 512 bytes"),
    ({"parameters": {"k": "v" * 256 * 1024}},
     "parameters: Too long: may not be more than 262144 bytes"),
    ({"reclaimPolicy": "Retain"}, None),
    ({"reclaimPolicy": "Recycle"},
     'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"'),
    ({"volumeBindingMode": "Later"},
     'volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", '
     '"WaitForFirstConsumer"'),
    ({TERMS: [TOPOLOGY]}, None),
    ({TERMS: [{}]}, None),
    ({TERMS: [TOPOLOGY, TOPOLOGY]},
     f'{TERMS}[1].matchLabelExpressions: Duplicate value: ""'),
    ({TERMS: [{"matchLabelExpressions": [{"key": "z", "values": ["a", "a"]}]}]},
     f'{TERMS}[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"'),
    ({TERMS: [{"matchLabelExpressions": [{"key": "z"}]}]},
     f"{TERMS}[0].matchLabelExpressions[0].values: Required value"),
    ({TERMS: [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}] * 2}]},
     f'{TERMS}[0].matchLabelExpressions[1].key: Duplicate value: "z"'),
])  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("provisioner", "b", '"b"'),
        ("parameters", {"a": "b"}, '{"a":"b"}'),
        ("reclaimPolicy", "Retain", '"Retain"'),
        ("volumeBindingMode", "WaitForFirstConsumer", '"WaitForFirstConsumer"'),
    ],
)
def test_how_volumes_are_made_stays(field: str, value: Any, shown: str) -> None:
    says = update_complaint(KIND, changed(KIND, {field: value}), changed(KIND))
    assert says == f"{field}: Invalid value: {shown}: field is immutable"


def test_the_rest_may_change() -> None:
    new = changed(KIND, {"allowVolumeExpansion": True, "mountOptions": ["ro"], TERMS: [TOPOLOGY]})
    assert update_complaint(KIND, new, changed(KIND)) is None


def test_deprecated_labels_are_warned_about() -> None:
    key = "failure-domain.beta.kubernetes.io/zone"
    terms = [{"matchLabelExpressions": [{"key": key, "values": ["a"]}]}]
    warnings = KINDS[KIND].strategy.warn(changed(KIND, {TERMS: terms}), None)
    assert warnings == [
        f"{TERMS}[0].matchLabelExpressions[0].key: deprecated since v1.17; use "
        '"topology.kubernetes.io/zone" instead'
    ]


def test_row() -> None:
    assert columns(KIND) == (
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age |"
    )
    assert row(KIND, {"provisioner": "p"}) == ["x", "p", "Delete", "Immediate", False, "90s"]


@pytest.mark.parametrize("prefix", ["storageclass", "storageclass.beta"])
def test_the_default_class_is_marked(prefix: str) -> None:
    annotations = {f"{prefix}.kubernetes.io/is-default-class": "true"}
    assert row(KIND, {"metadata": {"name": "x", "annotations": annotations}})[0] == "x (default)"
