"""FlowSchemas."""

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

KIND = "FlowSchema"
RULE = "spec.rules[0]"
VERBS = (
    'supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", '
    '"update", "watch"'
)
RESOURCES = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
EXEMPT = {
    "matchingPrecedence": 1,
    "priorityLevelConfiguration": {"name": "exempt"},
    "rules": [
        {
            "subjects": [{"kind": "Group", "group": {"name": "system:masters"}}],
            "resourceRules": [
                {
                    "verbs": ["*"],
                    "apiGroups": ["*"],
                    "resources": ["*"],
                    "clusterScope": True,
                    "namespaces": ["*"],
                }
            ],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }
    ],
}


test_creation = creations(KIND, is_exact=True, in_updates=True, cases=[
    ({"spec.matchingPrecedence": -1},
     "spec.matchingPrecedence: Invalid value: -1: must be a positive value"),
    ({"spec.matchingPrecedence": 10001},
     "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"),
    ({"spec.matchingPrecedence": 1},
     "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have "
     "matchingPrecedence 1"),
    ({"spec.distinguisherMethod": {"type": "X"}},
     'spec.distinguisherMethod.type: Unsupported value: {"Type":"X"}: supported values: '
     '"ByNamespace", "ByUser"'),
    ({"spec.priorityLevelConfiguration": {"name": ""}},
     "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"),
    ({f"{RULE}.subjects": []},
     "spec.rules[0].subjects: Required value: subjects must contain at least one value"),
    ({f"{RULE}.nonResourceRules": []},
     "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to "
     "be non-empty"),
    ({f"{RULE}.subjects[0]": {"kind": "X"}},
     'spec.rules[0].subjects[0].kind: Unsupported value: "X": supported values: "Group", '
     '"ServiceAccount", "User"'),
    ({f"{RULE}.subjects[0]": {"kind": "Group", "user": {"name": "u"}}},
     "[spec.rules[0].subjects[0].group: Required value: group is required when subject kind is "
     "'Group', spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind "
     "is not 'User']"),
    ({f"{RULE}.subjects[0]": {"kind": "User", "user": {"name": ""}}},
     "spec.rules[0].subjects[0].user.name: Required value"),
    ({f"{RULE}.subjects[0]": {
        "kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": ""}}},
     "spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify "
     "namespace for service account"),
    ({f"{RULE}.subjects[0]": {
        "kind": "ServiceAccount", "serviceAccount": {"name": "a", "namespace": "B"}}},
     f'spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: "B": {LABEL}'),
    ({f"{RULE}.resourceRules": [{}]},
     "[spec.rules[0].resourceRules[0].verbs: Required value: verbs must contain at least one "
     "value, spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must "
     "supply at least one api group, spec.rules[0].resourceRules[0].resources: Required "
     "value: resource rules must supply at least one resource, "
     "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not "
     "cluster scoped must supply at least one namespace]"),
    ({f"{RULE}.resourceRules": [
        {"verbs": ["*", "a"], "apiGroups": ["*", "a"], "resources": ["*", "a"],
         "namespaces": ["*", "a"]}]},
     "[" + ", ".join(
         f"spec.rules[0].resourceRules[0].{field}: Invalid value: [\"*\",\"a\"]: if '*' is "
         f"present, must not specify other {what}" for field, what in (
             ("verbs", "verbs"), ("apiGroups", "api groups"), ("resources", "resources"),
             ("namespaces", "namespaces"))) + "]"),
    ({f"{RULE}.resourceRules": [RESOURCES | {"verbs": ["run"], "namespaces": ["A"]}]},
     f'[spec.rules[0].resourceRules[0].verbs: Unsupported value: ["run"]: {VERBS}, '
     'spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: "A": each member of this '
     f"list must be '*' or a DNS-1123 label; {LABEL}]"),
    ({f"{RULE}.nonResourceRules": [{"verbs": ["get"]}]},
     "spec.rules[0].nonResourceRules[0].nonResourceURLs: Required value: nonResourceURLs must "
     "contain at least one value"),
    ({f"{RULE}.nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["*", "/"]}]},
     "spec.rules[0].nonResourceRules[0].nonResourceURLs: Invalid value: [\"*\",\"/\"]: if '*' "
     "is present, must not specify other non-resource URLs"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("/", ""),
        ("/a/*", ""),
        ("", "must not be empty"),
        ("a", "must start with slash"),
        ("/a b", "must not contain white-space"),
        ("/a//b", "must not contain double slash"),
        ("/a*", "wildcard can only do suffix matching"),
        ("/*/a/*", "wildcard can only do suffix matching"),
    ],
)
def test_urls(url: str, problem: str) -> None:
    obj = changed(KIND, {f"{RULE}.nonResourceRules[0].nonResourceURLs": [url]})
    path = "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]"
    says = f'{path}: Invalid value: "{url}": {problem}' if problem else None
    assert update_complaint(KIND, obj, changed(KIND)) == says


def test_the_schema_of_admins_is_fixed() -> None:
    legal = {"metadata": {"name": "exempt"}, "spec": EXEMPT}
    assert complaint(KIND, legal) is None
    error = complaint(KIND, {**legal, "spec": {**EXEMPT, "matchingPrecedence": 2}})
    assert error is not None
    assert error.endswith("spec of 'exempt' must equal the fixed value")


def test_the_default_precedence() -> None:
    assert decoded(KINDS[KIND], changed(KIND))["spec"]["matchingPrecedence"] == 1000


def test_a_status_has_one_condition_of_a_type() -> None:
    conditions = [{"type": "a"}, {"type": "a"}, {"type": ""}]
    new = changed(KIND, {"status": {"conditions": conditions}})
    assert update_complaint(KIND, new, changed(KIND), "status") == (
        '[status.conditions[1].type: Duplicate value: "a", '
        "status.conditions[2].type: Required value]"
    )


@pytest.mark.parametrize(
    ("spec", "conditions", "cells"),
    [
        ({"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "l"}}, [],
         ["x", "l", 5, "<none>", "90s", "?"]),
        ({"matchingPrecedence": 5, "distinguisherMethod": {"type": "ByUser"}},
         [{"type": "Dangling", "status": "False"}],
         ["x", "", 5, "ByUser", "90s", "False"]),
    ],
)  # fmt: skip
def test_row(spec: dict[str, Any], conditions: list[Any], cells: list[Any]) -> None:
    assert row(KIND, {"spec": spec, "status": {"conditions": conditions}}) == cells


def test_columns() -> None:
    assert columns(KIND) == (
        "Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL |"
    )
