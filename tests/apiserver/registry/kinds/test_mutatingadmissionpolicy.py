"""MutatingAdmissionPolicies: what only they have."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import creations

KIND = "MutatingAdmissionPolicy"
FIRST = "spec.mutations[0]"


test_creation = creations(KIND, is_exact=True, in_updates=True, cases=[
    ({"spec.matchConstraints.resourceRules[0].operations": ["DELETE"]},
     'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported '
     'values: "*", "CONNECT", "CREATE", "UPDATE"'),
    ({"spec.mutations": []},
     "spec.mutations: Required value: mutations must contain at least one item"),
    ({"spec.reinvocationPolicy": ""}, "spec.reinvocationPolicy: Required value"),
    ({"spec.reinvocationPolicy": "X"},
     'spec.reinvocationPolicy: Unsupported value: "X": supported values: "IfNeeded", "Never"'),
    ({f"{FIRST}.patchType": ""}, "spec.mutations[0].patchType: Required value"),
    ({f"{FIRST}.patchType": "X"},
     'spec.mutations[0].patchType: Unsupported value: "X": supported values: '
     '"ApplyConfiguration", "JSONPatch"'),
    ({f"{FIRST}.patchType": "ApplyConfiguration"},
     "[spec.mutations[0].applyConfiguration: Required value: must be specified when patchType "
     'is ApplyConfiguration, spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must '
     "not be specified when patchType is ApplyConfiguration]"),
    ({FIRST: {"patchType": "JSONPatch", "applyConfiguration": {"expression": "1"}}},
     "[spec.mutations[0].jsonPatch: Required value: must be specified when patchType is "
     'JSONPatch, spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": '
     "must not be specified when patchType is JSONPatch]"),
    ({f"{FIRST}.jsonPatch": {"expression": " "}},
     "spec.mutations[0].jsonPatch.expression: Required value"),
])  # fmt: skip


def test_row() -> None:
    assert row(KIND, {"spec": {"mutations": [{}]}}) == ["x", 1, "<unset>", "90s"]


def test_columns() -> None:
    assert columns(KIND) == "Name Mutations ParamKind Age |"
