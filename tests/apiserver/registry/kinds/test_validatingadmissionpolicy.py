"""ValidatingAdmissionPolicies; what they share with MutatingAdmissionPolicies too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    complaint,
    creations,
    decoded,
    update_complaint,
)

KIND = "ValidatingAdmissionPolicy"
MATCH = "spec.matchConstraints"
CONDITION = {"type": "Ready", "status": "True", "reason": "R", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"spec.failurePolicy": "X"},
         'spec.failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"'),
        ({"spec.paramKind": {}},
         "[spec.paramKind.apiVersion: Required value, spec.paramKind.kind: Required value]"),
        ({"spec.paramKind": {"apiVersion": "a/b/c", "kind": "Foo"}},
         'spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: '
         "a/b/c"),
        ({"spec.paramKind": {"apiVersion": "a/", "kind": "Foo"}},
         'spec.paramKind.apiVersion: Invalid value: "a/": version must be specified'),
        ({f"{MATCH}.matchPolicy": "X"},
         'spec.matchConstraints.matchPolicy: Unsupported value: "X": supported values: '
         '"Equivalent", "Exact"'),
        ({f"{MATCH}.resourceRules": []},
         "spec.matchConstraints.resourceRules: Required value"),
        ({f"{MATCH}.resourceRules[0].resourceNames": ["a", "a", "b/c"]},
         '[spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a", '
         'spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: "b/c": may not '
         "contain '/']"),
        ({f"{MATCH}.excludeResourceRules": [{}]},
         "[spec.matchConstraints.excludeResourceRules[0].operations: Required value, "
         "spec.matchConstraints.excludeResourceRules[0].apiGroups: Required value, "
         "spec.matchConstraints.excludeResourceRules[0].apiVersions: Required value, "
         "spec.matchConstraints.excludeResourceRules[0].resources: Required value]"),
        ({"spec.matchConditions": [{"name": "a"}]},
         "spec.matchConditions[0].expression: Required value"),
        ({"spec.variables": [{}, {"name": "in", "expression": "1"}]},
         "[spec.variables[0].name: Required value: name is not specified, "
         "spec.variables[0].expression: Required value: expression is not specified, "
         'spec.variables[1].name: Invalid value: "in": must be a valid CEL identifier]'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [KIND, "MutatingAdmissionPolicy"])
def test_policies(kind: str, sets: dict[str, Any], says: str) -> None:
    error = complaint(kind, changed(kind, sets))
    assert error is not None
    assert error.partition(" is invalid: ")[2] == says


test_creation = creations(KIND, is_exact=True, cases=[
    ({"spec.validations": []},
     "[spec.validations: Required value: validations or auditAnnotations must contain at least "
     "one item, spec.auditAnnotations: Required value: validations or auditAnnotations must "
     "contain at least one item]"),
    ({"spec.validations[0]": {}},
     "spec.validations[0].expression: Required value: expression is not specified"),
    ({"spec.validations[0].messageExpression": " ", "spec.validations[0].message": " "},
     '[spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if '
     'specified, spec.validations[0].message: Invalid value: " ": must be non-empty if '
     "specified]"),
    ({"spec.validations[0].message": "a\nb"},
     'spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks'),
    ({"spec.validations[0].reason": "Gone"},
     'spec.validations[0].reason: Unsupported value: "Gone": supported values: "Forbidden", '
     '"Invalid", "RequestEntityTooLarge"'),
    ({"spec.auditAnnotations": [{"key": "k"}, {"key": "k", "valueExpression": "a" * 5121}]},
     "[spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not "
     "specified, spec.auditAnnotations[1].valueExpression: Required value: must not exceed "
     '5120 bytes in length, spec.auditAnnotations[1].key: Duplicate value: "k"]'),
    ({"spec.auditAnnotations": [{"key": "", "valueExpression": "a"}]},
     '[spec.auditAnnotations[0].key: Invalid value: "p/": name part must be non-empty, '
     'spec.auditAnnotations[0].key: Invalid value: "p/": name part must consist of '
     "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
     "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
     "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]"),
])  # fmt: skip


def test_at_most_20_annotations() -> None:
    annotations = [{"key": f"k{number}", "valueExpression": "1"} for number in range(21)]
    error = complaint(KIND, changed(KIND, {"spec.auditAnnotations": annotations}))
    assert error is not None
    assert 'Invalid value: [{"Key":"k0","ValueExpression":"1"}' in error
    assert error.endswith("must not have more than 20 auditAnnotations")


def test_match_constraints_are_required() -> None:
    error = complaint(KIND, changed(KIND, {}, "spec.matchConstraints"))
    assert error is not None
    assert error.endswith("spec.matchConstraints: Required value")


def test_match_conditions_that_stay_are_not_judged_again() -> None:
    broken = {"spec.matchConditions": [{"name": "a"}]}
    kind = {"spec.paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    says = "spec.matchConditions[0].expression: Required value"
    assert update_complaint(KIND, changed(KIND, broken), changed(KIND, broken)) is None
    assert update_complaint(KIND, changed(KIND, broken | kind), changed(KIND, broken)) == says


def test_status() -> None:
    status = {
        "typeChecking": {"expressionWarnings": [{"fieldRef": " ", "warning": ""}]},
        "conditions": [CONDITION, CONDITION | {"status": "X"}],
    }
    new = changed(KIND, {"status": status})
    assert update_complaint(KIND, new, changed(KIND), "status") == (
        "[status.typeChecking.expressionWarnings[0].warning: Required value, "
        "status.typeChecking.expressionWarnings[0].fieldRef: Required value, "
        'status.conditions[1]: Duplicate value: "Ready", '
        'status.conditions[1].status: Unsupported value: "X": supported values: "False", "True", '
        '"Unknown"]'
    )


def test_an_update_of_the_status_keeps_the_metadata() -> None:
    kind = KINDS[KIND]
    new, old = decoded(kind, changed(KIND, {"metadata.labels": {"a": "b"}})), decoded(
        kind, changed(KIND)
    )  # fmt: skip
    kind.strategy.parts["status"].prepare(new, old)
    assert new == old


@pytest.mark.parametrize("kind", [KIND, "MutatingAdmissionPolicy"])
def test_defaults(kind: str) -> None:
    spec = decoded(KINDS[kind], changed(kind))["spec"]
    match = spec["matchConstraints"]
    assert spec["failurePolicy"] == "Fail"
    assert match["matchPolicy"] == "Equivalent"
    assert match["namespaceSelector"] == match["objectSelector"] == {}
    assert match["resourceRules"][0]["scope"] == "*"


@pytest.mark.parametrize(
    ("spec", "cells"),
    [
        ({"validations": [{}, {}]}, ["x", 2, "<unset>", "90s"]),
        ({"paramKind": {"apiVersion": "a/v1", "kind": "K"}}, ["x", 0, "a/v1/K", "90s"]),
    ],
)
def test_row(spec: dict[str, Any], cells: list[Any]) -> None:
    assert row(KIND, {"spec": spec}) == cells


def test_columns() -> None:
    assert columns(KIND) == "Name Validations ParamKind Age |"


@pytest.mark.parametrize("kind", [KIND, f"{KIND}Binding"])
def test_names_that_are_reserved_are_warned_about(kind: str) -> None:
    obj = {"metadata": {"name": "a.static.k8s.io"}}
    assert KINDS[kind].strategy.warn(obj, None) == []
    assert len(KINDS[kind].strategy.warn(obj, obj)) == 1
