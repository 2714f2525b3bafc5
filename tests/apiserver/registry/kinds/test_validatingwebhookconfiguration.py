"""ValidatingWebhookConfigurations; what they share with MutatingWebhookConfigurations too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "ValidatingWebhookConfiguration"
WEBHOOK = "webhooks[0]"
RULE = f"{WEBHOOK}.rules[0]"
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
INVALID_SELECTOR = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["-"]}]}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"metadata.name": "a.static.k8s.io"},
         'metadata.name: Invalid value: "a.static.k8s.io": names ending with ".static.k8s.io" are '
         "reserved for static manifest-based configurations and cannot be managed via the API"),
        ({f"{WEBHOOK}.name": ""}, "webhooks[0].name: Required value"),
        ({f"{WEBHOOK}.name": "a.b"},
         'webhooks[0].name: Invalid value: "a.b": should be a domain with at least three segments '
         "separated by dots"),
        ({f"{WEBHOOK}.name": "A.b.c"},
         'webhooks[0].name: Invalid value: "A.b.c": a lowercase RFC 1123 subdomain must consist '
         "of lower case alphanumeric characters, '-' or '.', and must start and end with an "
         "alphanumeric character (e.g. 'example.com', regex used for validation is "
         r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"),
        ({f"{WEBHOOK}.failurePolicy": "X"},
         'webhooks[0].failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"'),
        ({f"{WEBHOOK}.matchPolicy": "X"},
         'webhooks[0].matchPolicy: Unsupported value: "X": supported values: "Equivalent", '
         '"Exact"'),
        ({f"{WEBHOOK}.sideEffects": "Some"},
         'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", '
         '"NoneOnDryRun"'),
        ({f"{WEBHOOK}.timeoutSeconds": 31},
         "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and "
         "30 seconds"),
        ({f"{WEBHOOK}.objectSelector": {"matchExpressions": [{"key": "k", "operator": "X"}]}},
         'webhooks[0].objectSelector.matchExpressions[0].operator: Invalid value: "X": not a valid '
         "selector operator"),
        ({f"{WEBHOOK}.clientConfig": {}},
         "webhooks[0].clientConfig: Required value: exactly one of url or service is required"),
        ({f"{WEBHOOK}.admissionReviewVersions": []},
         "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"),
        ({f"{WEBHOOK}.admissionReviewVersions": ["v2", "v2", "1"]},
         '[webhooks[0].admissionReviewVersions[1]: Invalid value: "v2": duplicate version, '
         f'webhooks[0].admissionReviewVersions[2]: Invalid value: "1": {LABEL}, '
         'webhooks[0].admissionReviewVersions: Invalid value: ["v2","v2","1"]: must include at '
         "least one of v1, v1beta1]"),
        ({f"{RULE}.operations": []}, "webhooks[0].rules[0].operations: Required value"),
        ({f"{RULE}.operations": ["*", "GET"]},
         "[webhooks[0].rules[0].operations: Invalid value: [\"*\",\"GET\"]: if '*' is present, "
         "must not specify other operations, webhooks[0].rules[0].operations[1]: Unsupported "
         'value: "GET": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"]'),
        ({f"{RULE}.apiGroups": []}, "webhooks[0].rules[0].apiGroups: Required value"),
        ({f"{RULE}.apiGroups": ["*", "a"]},
         "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must "
         "not specify other API groups"),
        ({f"{RULE}.apiVersions": []}, "webhooks[0].rules[0].apiVersions: Required value"),
        ({f"{RULE}.apiVersions": ["*", ""]},
         "[webhooks[0].rules[0].apiVersions: Invalid value: [\"*\",\"\"]: if '*' is present, must "
         "not specify other API versions, webhooks[0].rules[0].apiVersions[1]: Required value]"),
        ({f"{RULE}.resources": []}, "webhooks[0].rules[0].resources: Required value"),
        ({f"{RULE}.resources": ["", "*/*", "a/*", "a/b", "c/*"]},
         "[webhooks[0].rules[0].resources[0]: Required value, "
         "webhooks[0].rules[0].resources[2]: Invalid value: \"a/*\": if '*/*' is present, must not "
         "specify a/*, "
         "webhooks[0].rules[0].resources[3]: Invalid value: \"a/b\": if 'a/*' is present, must not "
         "specify a/b, "
         "webhooks[0].rules[0].resources[4]: Invalid value: \"c/*\": if '*/*' is present, must not "
         "specify c/*, "
         'webhooks[0].rules[0].resources: Invalid value: ["","*/*","a/*","a/b","c/*"]: if \'*/*\' '
         "is present, must not specify other resources]"),
        ({f"{RULE}.resources": ["*", "pods"]},
         "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must "
         "not specify other resources without subresources"),
        ({f"{RULE}.scope": "X"},
         'webhooks[0].rules[0].scope: Unsupported value: "X": supported values: "*", "Cluster", '
         '"Namespaced"'),
        ({f"{WEBHOOK}.matchConditions": [{"expression": " "}, {"name": "a b", "expression": "1"}]},
         "[webhooks[0].matchConditions[0].expression: Required value, "
         "webhooks[0].matchConditions[0].name: Required value, "
         'webhooks[0].matchConditions[1].name: Invalid value: "a b": name part must consist of '
         "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
         "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
         "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]"),
        ({f"{WEBHOOK}.matchConditions": 2 * [{"name": "a", "expression": "1"}]},
         'webhooks[0].matchConditions[1].name: Duplicate value: "a"'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [KIND, "MutatingWebhookConfiguration"])
def test_creation(kind: str, sets: dict[str, Any], says: str) -> None:
    error = complaint(kind, changed(kind, sets))
    assert error is not None
    assert error.partition(" is invalid: ")[2] == says


def test_side_effects_are_required() -> None:
    obj = changed(KIND, {}, f"{WEBHOOK}.sideEffects")
    error = complaint(KIND, obj)
    assert error is not None
    assert error.endswith(
        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"
    )


def test_more_than_64_match_conditions() -> None:
    conditions = [{"name": f"c{number}", "expression": "true"} for number in range(65)]
    error = complaint(KIND, changed(KIND, {f"{WEBHOOK}.matchConditions": conditions}))
    assert error is not None
    assert error.endswith("webhooks[0].matchConditions: Too many: 65: must have at most 64 items")


def test_names_are_unique() -> None:
    webhook = changed(KIND)["webhooks"][0]
    error = complaint(KIND, changed(KIND, {"webhooks": [webhook, webhook]}))
    assert error is not None
    assert error.endswith('webhooks[1].name: Duplicate value: "a.example.com"')


@pytest.mark.parametrize(
    "old",
    [
        {f"{WEBHOOK}.sideEffects": "Some"},
        {f"{WEBHOOK}.admissionReviewVersions": ["v7"]},
        {f"{WEBHOOK}.objectSelector": INVALID_SELECTOR},
        {f"{WEBHOOK}.matchConditions": [{"name": "a"}]},
    ],
)
def test_what_the_old_object_breaks_may_stay(old: dict[str, Any]) -> None:
    before = changed(KIND, old)
    after = changed(KIND, {**old, f"{WEBHOOK}.timeoutSeconds": 3})
    assert update_complaint(KIND, after, before) is None
    assert update_complaint(KIND, after, changed(KIND)) is not None


def test_names_that_were_not_unique_may_stay() -> None:
    webhook = changed(KIND)["webhooks"][0]
    twice = changed(KIND, {"webhooks": [webhook, webhook]})
    assert update_complaint(KIND, twice, twice) is None


def test_defaults() -> None:
    service = {"name": "s", "namespace": "n"}
    obj = changed(KIND, {f"{WEBHOOK}.clientConfig": {"service": service}})
    webhook = decoded(KINDS[KIND], obj)["webhooks"][0]
    assert webhook["clientConfig"]["service"]["port"] == 443
    assert webhook["rules"][0]["scope"] == "*"
    assert {
        field: webhook[field]
        for field in ("failurePolicy", "matchPolicy", "namespaceSelector", "objectSelector",
                      "timeoutSeconds")
    } == {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }  # fmt: skip


def test_rules_without_effect_are_warned_about() -> None:
    rule = {"apiGroups": ["authentication.k8s.io", ""], "resources": ["tokenreviews", "pods"]}
    anything = {**rule, "resources": ["*", "tokenreviews"]}
    configuration = {"metadata": {}, "webhooks": [{"rules": [anything, rule]}]}
    assert KINDS[KIND].strategy.warn(configuration, None) == [
        "webhooks[0].rules[1]: tokenreviews.authentication.k8s.io is excluded from admission "
        "webhooks; this rule will have no effect",
    ]


def test_a_reserved_name_is_warned_about() -> None:
    obj = {"metadata": {"name": "a.static.k8s.io"}}
    assert KINDS[KIND].strategy.warn(obj, None) == []
    assert KINDS[KIND].strategy.warn(obj, obj) == [
        'metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based '
        "configurations and cannot be managed via the API"
    ]


def test_row() -> None:
    assert row(KIND, {"webhooks": [{}, {}]}) == ["x", 2, "90s"]


def test_columns() -> None:
    assert columns(KIND) == "Name Webhooks Age |"
