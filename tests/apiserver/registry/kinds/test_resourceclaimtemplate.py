"""ResourceClaimTemplates."""

from __future__ import annotations

import json

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    complaint,
    creations,
    decoded,
    update_complaint,
)

KIND = "ResourceClaimTemplate"
EXACT = "spec.spec.devices.requests[0].exactly"


test_creation = creations(KIND, is_exact=True, cases=[
    ({}, None),
    ({"spec.metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}, None),
    ({"spec.metadata": {"name": "x", "finalizers": ["a/b"]}},
     "[spec.metadata.name: Forbidden: cannot be set, spec.metadata.finalizers: Forbidden: "
     "cannot be set]"),
    ({EXACT: {}}, f"{EXACT}.deviceClassName: Required value"),
    ({f"{EXACT}.count": -1}, f"{EXACT}.count: Invalid value: -1: must be greater than zero"),
])  # fmt: skip


def test_labels_and_annotations_of_claims_are_checked() -> None:
    meta = {"labels": {"a b": "c"}, "annotations": {"a b": "c"}}
    error = complaint(KIND, changed(KIND, {"spec.metadata": meta}))
    assert error is not None
    assert error.count('Invalid value: "a b": name part must consist of') == 2


def test_the_specification_is_immutable() -> None:
    new = changed(KIND, {f"{EXACT}.count": 2})
    shown = json.dumps(decoded(KINDS[KIND], new)["spec"], separators=(",", ":"))
    assert update_complaint(KIND, new, changed(KIND)) == (
        f"spec: Invalid value: {shown}: field is immutable"
    )
    labelled = changed(KIND, {"metadata.labels": {"a": "b"}})
    assert update_complaint(KIND, labelled, changed(KIND)) is None


def test_defaults() -> None:
    spec = decoded(KINDS[KIND], changed(KIND))["spec"]["spec"]
    assert spec["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
    }


def test_derived_attributes_are_dropped() -> None:
    kind = KINDS[KIND]
    sets = {f"{EXACT}.derivedAttributes": [{"name": "d/a", "expression": "1"}]}
    expected = decoded(kind, changed(KIND))
    new = decoded(kind, changed(KIND, sets))
    kind.strategy.prepare_create(new)
    assert new == expected
    new = decoded(kind, changed(KIND, sets))
    kind.strategy.prepare_update(new, expected)
    assert new == expected


def test_table() -> None:
    assert columns(KIND) == "Name Age |"
    assert row(KIND, {}) == ["x", "90s"]
