"""Policies: what their expressions see, and what becomes of errors and messages."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.library.authorization import asking
from moorage.apiserver.cel.messages import Check, Decision, PolicyInput, Verdict
from moorage.apiserver.cel.policies import CompiledPolicy, policy_problems

GIVEN = PolicyInput(
    request={"operation": "UPDATE", "userInfo": {"username": "alice", "groups": ["dev"]}},
    object={"kind": "Pod", "metadata": {"name": "p", "labels": {"a-b": "c"}}, "spec": {"n": 3}},
    old_object={"spec": {"n": 2}},
    namespace={"metadata": {"name": "ns", "labels": {"team": "x"}}},
)


def policy(*validations: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"expression": one} if isinstance(one, str) else one for one in validations]
    return {"validations": listed, **more}


def decide(
    source: dict[str, Any], params: Any = None, given: PolicyInput = GIVEN
) -> list[Decision]:
    return CompiledPolicy(source).evaluate(given, params).decisions


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.n > oldObject.spec.n",
        "object.metadata.labels['a-b'] == 'c'",
        "request.operation == 'UPDATE' && request.userInfo.username == 'alice'",
        "'dev' in request.userInfo.groups",
        "namespaceObject.metadata.labels.team == 'x'",
        "has(object.spec) && !has(object.status)",
        "object.spec.?absent.orValue(1) == 1",
    ],
)
def test_what_expressions_see(expression: str) -> None:
    assert decide(policy(expression)) == []
    (denied,) = decide(policy(f"!({expression})"))
    assert not denied.is_error


def test_objects_that_are_not_there_are_null() -> None:
    created = PolicyInput(request={"operation": "CREATE"}, object={})
    assert decide(policy("oldObject == null && namespaceObject == null"), given=created) == []
    deleted = PolicyInput(request={"operation": "DELETE"}, old_object={})
    assert decide(policy("object == null"), given=deleted) == []


def test_parameters() -> None:
    source = policy("params == null || object.spec.n <= params.data.most", paramKind={"kind": "X"})
    assert decide(source, {"data": {"most": 3}}) == []
    assert decide(source, None) == []
    assert len(decide(source, {"data": {"most": 2}})) == 1


@pytest.mark.parametrize(
    ("validation", "decision"),
    [
        ({"expression": " object.spec.n < 2 "}, Decision("failed expression: object.spec.n < 2")),
        ({"expression": "false", "message": " too many "}, Decision("too many")),
        ({"expression": "false", "messageExpression": "'n is ' + string(object.spec.n)"},
         Decision("n is 3")),
        ({"expression": "false", "message": "m", "messageExpression": "string(object.zz)"},
         Decision("m")),
        ({"expression": "false", "message": "m", "messageExpression": "'a\\nb'"}, Decision("m")),
        ({"expression": "false", "message": "m", "messageExpression": "' '"}, Decision("m")),
        ({"expression": "false", "messageExpression": "object.spec.n"},
         Decision("failed expression: false")),
        ({"expression": "false", "reason": "Forbidden"},
         Decision("failed expression: false", reason="Forbidden")),
        ({"expression": "object.zz == 1"},
         Decision("expression 'object.zz == 1' resulted in error: no such key: zz", is_error=True)),
        ({"expression": "object.spec.n"}, Decision("failed expression: object.spec.n")),
    ],
)  # fmt: skip
def test_why_a_validation_fails(validation: dict[str, Any], decision: Decision) -> None:
    assert decide(policy(validation)) == [decision]


@pytest.mark.parametrize(
    ("letter", "count", "is_shown"), [("a", 5120, True), ("a", 5121, False), ("é", 2561, False)]
)
def test_a_message_may_have_five_kibibytes(letter: str, count: int, is_shown: bool) -> None:
    text = letter * count
    source = {"expression": "false", "message": "m", "messageExpression": f"'{text}'"}
    assert decide(policy(source)) == [Decision(text if is_shown else "m")]


def test_an_annotation_is_cut_off_at_ten_kibibytes() -> None:
    annotations = [{"key": "k", "valueExpression": f"' {'a' * 10241} '"}]
    result = CompiledPolicy(policy("true", auditAnnotations=annotations)).evaluate(GIVEN, None)
    assert result.annotations == {"k": "a" * 10240}


def test_every_validation_is_decided() -> None:
    decisions = decide(policy("false", "true", "object.zz == 1", "false"))
    assert [(one.index, one.is_error) for one in decisions] == [(0, False), (2, True), (3, False)]


COSTLY = "sets.intersects(object.l, object.l)"
"""Costs about 800,000 for `LONG`, and takes no time."""

LONG = PolicyInput(request={}, object={"l": [1] * 900})
OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def test_a_validation_that_costs_too_much_fails_alone() -> None:
    too_costly, failed = decide(policy(f"{COSTLY} && {COSTLY}", "false"), given=LONG)
    assert too_costly.is_error
    assert too_costly.message.endswith("operation cancelled: actual cost limit exceeded")
    assert not failed.is_error


def test_validations_have_one_budget() -> None:
    assert len(decide(policy(*[COSTLY] * 12, "false"), given=LONG)) == 1
    (only,) = decide(policy("false", *[COSTLY] * 13), given=LONG)
    assert only == Decision(OUT_OF_BUDGET, is_error=True)


def test_messages_are_paid_for_with_what_is_left() -> None:
    source = {"expression": "false", "messageExpression": f"{COSTLY} ? 'a' : 'b'"}
    assert decide(policy(*[COSTLY] * 11, source), given=LONG)[0].message == "a"
    decisions = decide(policy(*[COSTLY] * 12, source), given=LONG)
    assert {one.message for one in decisions} == {f"failed messageExpression: {OUT_OF_BUDGET}"}
    assert [one.index for one in decisions] == list(range(13))


def test_annotations_have_a_budget_of_their_own() -> None:
    annotations = [
        {"key": f"k{index}", "valueExpression": f"{COSTLY} ? 'a' : 'b'"} for index in range(13)
    ]
    result = CompiledPolicy(policy(*[COSTLY] * 12, auditAnnotations=annotations[:12])).evaluate(
        LONG, None
    )
    assert len(result.annotations) == 12
    source = policy("true", auditAnnotations=annotations)
    assert decide(source, given=LONG) == [Decision(OUT_OF_BUDGET, is_error=True)]


def test_match_conditions_have_a_smaller_budget() -> None:
    conditions = [{"name": f"c{index}", "expression": COSTLY} for index in range(4)]
    assert len(decide(policy("false", matchConditions=conditions[:3]), given=LONG)) == 1
    (only,) = decide(policy("false", matchConditions=conditions), given=LONG)
    assert only == Decision(OUT_OF_BUDGET, is_error=True)


def test_a_variable_is_paid_for_once_and_only_where_it_is_mentioned() -> None:
    variables = [{"name": f"v{index}", "expression": COSTLY} for index in range(14)]
    chain = [
        variables[0],
        *({**one, "expression": f"variables.v{index} && {COSTLY}"}
          for index, one in enumerate(variables[1:])),
    ]  # fmt: skip
    twice = ["variables.v0 && variables.v1"] * 2
    assert decide(policy(*twice, *[COSTLY] * 10, variables=variables), given=LONG) == []
    assert decide(policy("variables.v11", variables=chain), given=LONG) == []
    (only,) = decide(policy("variables.v13", variables=chain), given=LONG)
    assert only == Decision(OUT_OF_BUDGET, is_error=True)


def test_variables_see_those_before_them() -> None:
    variables = [
        {"name": "n", "expression": "object.spec.n"},
        {"name": "twice", "expression": "variables.n * 2"},
        {"name": "span", "expression": "[duration('1h')]"},
        {"name": "moment", "expression": "{'t': timestamp('2026-01-01T00:00:00Z')}"},
    ]
    source = policy(
        "variables.twice == 6", "variables.span[0] == duration('60m')",
        "variables.moment.t.getFullYear() == 2026", variables=variables,
    )  # fmt: skip
    assert decide(source) == []


def test_a_variable_without_a_value_matters_where_it_is_needed() -> None:
    variables = [
        {"name": "bad", "expression": "object.zz"},
        {"name": "worse", "expression": "variables.bad + 1"},
    ]
    assert decide(policy("true || variables.bad == 1", variables=variables)) == []
    (failed,) = decide(policy("variables.bad == 1", variables=variables))
    assert failed.message == (
        "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to "
        "evaluate: no such key: zz"
    )
    (failed,) = decide(policy("variables.worse == 1", variables=variables))
    assert 'composited variable "worse" fails to evaluate: composited variable "bad"' in (
        failed.message
    )


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        (["true"], ["failed expression: false"]),
        (["true", "false"], []),
        (["object.zz", "false"], []),
        (["object.zz", "true"], ["expression 'object.zz' resulted in error: no such key: zz"]),
        (["object.y", "object.z"],
         ["[expression 'object.y' resulted in error: no such key: y, "
          "expression 'object.z' resulted in error: no such key: z]"]),
    ],
)  # fmt: skip
def test_match_conditions(conditions: list[str], says: list[str]) -> None:
    listed = [{"name": "c", "expression": one} for one in conditions]
    decisions = decide(policy("false", matchConditions=listed))
    assert [one.message for one in decisions] == says


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("'x'", []),
        ("null", []),
        ("object.zz", ["expression 'object.zz' resulted in error: no such key: zz"]),
        ("object.spec.n",
         ["valueExpression 'object.spec.n' resulted in unsupported return type: int. Return type "
          "must be either string or null."]),
    ],
)  # fmt: skip
def test_audit_annotations_have_a_value(expression: str, says: list[str]) -> None:
    annotations = [{"key": "k", "valueExpression": expression}]
    decisions = decide(policy("true", auditAnnotations=annotations))
    assert [one.message for one in decisions] == says
    assert all(one.is_error for one in decisions)


@pytest.mark.parametrize(
    ("source", "path", "detail"),
    [
        (policy("object.x ="), ".validations[0].expression", "compilation failed: ERROR: <input>"),
        (policy("true", "1"), ".validations[1].expression", "must evaluate to bool"),
        (policy({"expression": "true", "messageExpression": "1"}),
         ".validations[0].messageExpression", "must evaluate to string"),
        (policy("true", matchConditions=[{"name": "a", "expression": "1"}]),
         ".matchConditions[0].expression", "must evaluate to bool"),
        (policy("true", variables=[{"name": "a", "expression": "("}]),
         ".variables[0].expression", "compilation failed: ERROR"),
        (policy("true", auditAnnotations=[{"key": "k", "valueExpression": "1"}]),
         ".auditAnnotations[0].valueExpression",
         "must evaluate to one of [string null_type] but got int"),
        (policy("params.x"), ".validations[0].expression",
         "compilation failed: ERROR: <input>:1:7: undeclared reference to 'params.x'"),
        (policy("variables.x"), ".validations[0].expression",
         "compilation failed: ERROR: <input>:1:10: undeclared reference to 'variables.x'"),
        (policy("object.flag"), ".validations[0].expression",
         "must evaluate to bool but got dyn"),
    ],
)  # fmt: skip
def test_problems_of_expressions(source: dict[str, Any], path: str, detail: str) -> None:
    (only,) = policy_problems(source)
    assert (only.path, only.detail[: len(detail)]) == (path, detail)


def test_a_condition_may_be_a_variable() -> None:
    """As e2e `should allow expressions to refer variables.`"""
    variables = [{"name": "odd", "expression": "object.spec.replicas % 2 == 1"}]
    assert policy_problems(policy("variables.odd", variables=variables)) == []


class Authorizer:
    """Decides checks for the test, and remembers them."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.checks: list[Check] = []

    def __call__(self, check: Check) -> Verdict:
        self.checks.append(check)
        return Verdict(check.verb in self.allowed, f"about {check.verb}")


@pytest.mark.parametrize(
    ("expression", "check"),
    [
        ("authorizer.path('/healthz').check('get')", Check("get", path="/healthz")),
        ("authorizer.group('apps').resource('deployments').subresource('scale').namespace('n')"
         ".name('d').check('get')",
         Check("get", group="apps", resource="deployments", subresource="scale", namespace="n",
               name="d")),
        ("authorizer.serviceAccount('ns', 'sa').group('').resource('pods').check('get')",
         Check("get", account=("ns", "sa"), resource="pods")),
        ("authorizer.requestResource.check('get')",
         Check("get", group="g", resource="r", subresource="s", namespace="n", name="m")),
        ("authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c').check('get')",
         Check("get", resource="pods", field_selector="a=b", label_selector="c")),
    ],
)  # fmt: skip
def test_the_authorizer_is_asked_what_an_expression_builds(expression: str, check: Check) -> None:
    given = PolicyInput(
        request={"resource": {"group": "g", "version": "v1", "resource": "r"}, "subResource": "s",
                 "namespace": "n", "name": "m"},
        object={},
    )  # fmt: skip
    authorizer = Authorizer("get")
    source = policy(
        f"{expression}.allowed() && {expression}.reason() == 'about get'",
        f"!{expression}.errored() && {expression}.error() == ''",
    )
    assert policy_problems(source) == []
    with asking(authorizer):
        assert decide(source, given=given) == []
    assert set(authorizer.checks) == {check}


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("authorizer.path(' ').check('get')", "path must not be empty"),
        ("authorizer.group('').resource('').check('get')", "resource must not be empty"),
        ("authorizer.serviceAccount('a', 'B').path('x').check('get')",
         "Invalid service account name"),
        ("authorizer.serviceAccount('A', 'b').path('x').check('get')",
         "Invalid service account namespace"),
        ("kubernetes.authorization.ResourceCheck{text: 'no JSON'}.check('get')", "malformed"),
    ],
)  # fmt: skip
def test_checks_that_cannot_be_made_are_errors(expression: str, error: str) -> None:
    with asking(Authorizer("get")):
        (failed,) = decide(policy(f"{expression}.allowed()"))
    assert failed.is_error
    assert error in failed.message


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2, 3].all(x, {check})",
        "[1, 2, 3].exists(x, !{check}) || true",
        "[1, 2].all(x, {check}) && {check} ? true : true",
    ],
)
def test_an_expression_pays_for_two_checks(expression: str) -> None:
    check = "authorizer.path('/healthz').check('get').allowed()"
    authorizer = Authorizer("get")
    with asking(authorizer):
        assert decide(policy(f"[1, 2].all(x, {check})", f"[1, 2].all(x, {check})")) == []
        (failed,) = decide(policy(expression.replace("{check}", check)))
    assert failed.is_error
    assert failed.message.endswith("operation cancelled: actual cost limit exceeded")
    assert len(authorizer.checks) == 6


def test_audit_annotations_are_part_of_the_result() -> None:
    annotations = [
        {"key": "a", "valueExpression": "'is ' + string(object.spec.n)"},
        {"key": "b", "valueExpression": "null"},
        {"key": "c", "valueExpression": "' '"},
    ]
    result = CompiledPolicy(policy("false", auditAnnotations=annotations)).evaluate(GIVEN, None)
    assert result.annotations == {"a": "is 3"}


def test_expressions_that_compile_are_no_problem() -> None:
    source = policy(
        {"expression": "params.x > variables.n", "messageExpression": "'a' + params.text"},
        paramKind={"kind": "X"}, variables=[{"name": "n", "expression": "1"}],
        auditAnnotations=[{"key": "k", "valueExpression": "params == null ? '' : 'a'"}],
    )  # fmt: skip
    assert policy_problems(source) == []
