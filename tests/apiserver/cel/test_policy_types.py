"""Type checks of policies: which errors a kind's schema shows."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.policy_scope import type_problems

_CONTAINER = {"type": "object", "properties": {"image": {"type": "string"}}}
KIND = {
    "type": "object",
    "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "containers": {"type": "array", "items": _CONTAINER},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"oneOf": [], "x-kubernetes-int-or-string": True},
                "since": {"type": "string", "format": "date-time"},
                "namespace": {"type": "string"},
            },
        },
    },
}
PARAMS = {"type": "object", "properties": {"most": {"type": "integer"}}}
VARIABLES = [
    {"name": "spec", "expression": "object.spec"},
    {"name": "first", "expression": "variables.spec.containers[0]"},
    {"name": "names", "expression": "variables.spec.containers.map(c, c.image)"},
    {"name": "count", "expression": "size(variables.names)"},
    {"name": "labels", "expression": "object.spec.labels"},
    {"name": "since", "expression": "oldObject.spec.since"},
    {"name": "broken", "expression": "object.nothing"},
    {"name": "twice", "expression": "{1: 'x'}"},
]


def check(expression: str, params: Any = None, **more: Any) -> list[str]:
    policy = {"validations": [{"expression": expression}], "variables": VARIABLES, **more}
    return [problem.detail for problem in type_problems(policy, KIND, params)]


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.replicas > 1 && object.metadata.name.startsWith('a')",
        "object.spec.port == 80 || object.spec.port == 'http'",
        "object.spec.since < timestamp('2026-01-01T00:00:00Z')",
        "variables.first.image == 'x' && variables.names[0] == 'x' && variables.count == 1",
        "variables.labels['a'] == 'b' && variables.since.getFullYear() == 2026",
        "variables.spec == object.spec",
        "variables.broken.anything == 1 && variables.twice[1] == 'x'",
        "request.userInfo.extra['a'][0] == 'b' && request.options.anything == 1",
        "namespaceObject.status.conditions[0].lastTransitionTime.getHours() == 1",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "!has(object.spec.namespace) || object.spec.namespace != 'evil'",
        "object.spec.__namespace__ != 'evil'",
    ],
)
def test_expressions_that_fit_the_kind(expression: str) -> None:
    assert check(expression) == []


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("object.spce.replicas > 1", "1:7: undefined field 'spce'"),
        ("object.spec.replicas > '1'", "1:22: found no matching overload for '_>_'"),
        ("variables.first.imgae == 'x'", "1:16: undefined field 'imgae'"),
        ("variables.count == 'x'", "1:17: found no matching overload for '_==_'"),
        ("variables.names[0] == 1", "1:20: found no matching overload for '_==_'"),
        ("variables.absent", "1:10: undefined field 'absent'"),
        ("request.userinfo.username == 'x'", "1:8: undefined field 'userinfo'"),
        ("namespaceObject.metadata.managedFields", "1:25: undefined field 'managedFields'"),
        ("oldObject.spec.labels.a == 1", "1:25: found no matching overload for '_==_'"),
    ],
)
def test_expressions_that_do_not_fit_are_named_with_their_first_error(
    expression: str, error: str
) -> None:
    (detail,) = check(expression)
    assert detail.startswith(f"ERROR: <input>:{error}")
    assert detail.count("ERROR") == 1


def test_parameters_have_the_types_of_their_schema_and_any_type_without_one() -> None:
    kind = {"apiVersion": "a/v1", "kind": "Limits"}
    assert check("object.spec.replicas < params.most", PARAMS, paramKind=kind) == []
    assert check("params.anything == 1", None, paramKind=kind) == []
    (detail,) = check("params.least == 1", PARAMS, paramKind=kind)
    assert "undefined field 'least'" in detail


def test_messages_are_checked_too_and_paths_name_the_expression() -> None:
    validations = [
        {"expression": "true"},
        {"expression": "object.a", "messageExpression": "object.b"},
    ]
    problems = type_problems({"validations": validations}, KIND, None)
    assert [problem.path for problem in problems] == [
        ".validations[1].expression",
        ".validations[1].messageExpression",
    ]
