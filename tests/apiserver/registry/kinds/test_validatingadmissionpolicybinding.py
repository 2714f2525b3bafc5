"""ValidatingAdmissionPolicyBindings; what they share with MutatingAdmissionPolicyBindings too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "ValidatingAdmissionPolicyBinding"
BOTH = [KIND, "MutatingAdmissionPolicyBinding"]
EXCLUSIVE = "name and selector are mutually exclusive"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"metadata.name": "b.static.k8s.io"},
         'metadata.name: Invalid value: "b.static.k8s.io": names ending with ".static.k8s.io" are '
         "reserved for static manifest-based configurations and cannot be managed via the API"),
        ({"spec.policyName": ""}, "spec.policyName: Required value"),
        ({"spec.policyName": "-"},
         'spec.policyName: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of '
         "lower case alphanumeric characters, '-' or '.', and must start and end with an "
         "alphanumeric character (e.g. 'example.com', regex used for validation is "
         r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"),
        ({"spec.paramRef": {}},
         "[spec.paramRef: Required value: one of name or selector must be specified, "
         "spec.paramRef.parameterNotFoundAction: Required value]"),
        ({"spec.paramRef": {"name": "a/b", "selector": {}, "parameterNotFoundAction": "X"}},
         "[spec.paramRef.name: Invalid value: \"a/b\": may not contain '/', "
         f"spec.paramRef.name: Forbidden: {EXCLUSIVE}, "
         f"spec.paramRef.selector: Forbidden: {EXCLUSIVE}, "
         'spec.paramRef.parameterNotFoundAction: Unsupported value: "X": supported values: "Deny", '
         '"Allow"]'),
        ({"spec.matchResources": {"matchPolicy": "X"}},
         'spec.matchResources.matchPolicy: Unsupported value: "X": supported values: "Equivalent", '
         '"Exact"'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", BOTH)
def test_bindings(kind: str, sets: dict[str, Any], says: str) -> None:
    error = complaint(kind, changed(kind, sets))
    assert error is not None
    assert error.partition(" is invalid: ")[2] == says


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ([], "spec.validationActions: Required value"),
        (["X", "X"],
         '[spec.validationActions[0]: Unsupported value: "X": supported values: "Audit", "Deny", '
         '"Warn", spec.validationActions[1]: Unsupported value: "X": supported values: "Audit", '
         '"Deny", "Warn", spec.validationActions[1]: Duplicate value: "X"]'),
        (["Deny", "Warn"],
         'spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and '
         "Warn (repeating the same validation failure information in the API response and headers "
         "serves no purpose)"),
    ],
)  # fmt: skip
def test_actions(actions: list[str], says: str) -> None:
    new = changed(KIND, {"spec.validationActions": actions})
    assert update_complaint(KIND, new, changed(KIND)) == says


@pytest.mark.parametrize("kind", BOTH)
def test_defaults(kind: str) -> None:
    match = decoded(KINDS[kind], changed(kind, {"spec.matchResources": {}}))["spec"][
        "matchResources"
    ]
    assert match == {
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        (None, "<unset>"),
        ({"name": "n"}, "*/n"),
        ({"name": "n", "namespace": "s"}, "s/n"),
        ({"selector": {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["v", "w"]}]}},
         "&LabelSelector{MatchLabels:map[string]string{a: 2,b: 1,},MatchExpressions:"
         "[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},"
         "}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", BOTH)
def test_row(kind: str, reference: dict[str, Any] | None, shown: str) -> None:
    spec = {"policyName": "p"} | ({} if reference is None else {"paramRef": reference})
    assert row(kind, {"spec": spec}) == ["x", "p", shown, "90s"]


def test_columns() -> None:
    assert columns(KIND) == "Name PolicyName ParamRef Age |"
