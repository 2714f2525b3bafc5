"""MutatingAdmissionPolicyBindings: what only they have."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns
from tests.apiserver.registry.rules import changed, update_complaint

KIND = "MutatingAdmissionPolicyBinding"


def test_deletions_are_not_mutated() -> None:
    rule = {"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    new = changed(KIND, {"spec.matchResources": {"resourceRules": [rule]}})
    assert update_complaint(KIND, new, changed(KIND)) == (
        'spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported '
        'values: "*", "CONNECT", "CREATE", "UPDATE"'
    )


def test_columns() -> None:
    assert columns(KIND) == "Name PolicyName ParamRef Age |"
