"""Audit annotations of validating policies: what an audit event gets from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.api.errors import StatusError
from moorage.api.fields import FieldSelector
from moorage.apiserver.admission.policies import Selection, ValidatingPolicies
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.cel.messages import Verdict
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from tests.apiserver.admission.policies.test_params import FakeSource
from tests.apiserver.admission.writes import pod, write

RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}


class Policies:
    """One policy with bindings, as the source of a selection."""

    def __init__(self, spec: Obj, *bindings: Obj) -> None:
        match = {"matchConstraints": {"resourceRules": [RULE]}}
        metadata = {"name": "p", "uid": "u", "generation": 1}
        self._policy = {"metadata": metadata, "spec": {**match, **spec}}
        self._bindings = tuple(
            {"metadata": {"name": f"b{index}"}, "spec": {"policyName": "p", **binding}}
            for index, binding in enumerate(bindings)
        )

    def policies(self) -> tuple[Obj, ...]:
        return (self._policy,)

    def bindings(self, policy: str) -> tuple[Obj, ...]:
        assert policy == "p"
        return self._bindings


@pytest.fixture
async def evaluator() -> AsyncIterator[Evaluator]:
    async with Evaluator() as running:
        yield running


def deny_all(user: User, action: Action, selector: FieldSelector) -> Any:
    del user, action, selector
    return Verdict(is_allowed=False)


async def annotated(evaluator: Evaluator, policies: Policies) -> dict[str, str]:
    attributes = write(obj=pod())
    selection = Selection(policies, lambda _: None)
    plugin = ValidatingPolicies(selection, FakeSource(), evaluator, deny_all)
    enforcing = plugin.validate(attributes)
    assert enforcing is not None
    await enforcing
    return attributes.request.annotations


async def test_annotations_are_named_by_their_policy(evaluator: Evaluator) -> None:
    listed = [
        {"key": "name", "valueExpression": "'is ' + object.metadata.name"},
        {"key": "none", "valueExpression": "null"},
    ]
    policies = Policies({"auditAnnotations": listed}, {}, {})
    assert await annotated(evaluator, policies) == {"p/name": "is p"}


async def test_values_of_several_parameters_are_joined(evaluator: Evaluator) -> None:
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "auditAnnotations": [{"key": "k", "valueExpression": "params.metadata.name"}],
    }
    reference = {"namespace": "a", "selector": {}, "parameterNotFoundAction": "Deny"}
    policies = Policies(spec, {"paramRef": reference}, {"paramRef": reference})
    assert await annotated(evaluator, policies) == {"p/k": "one, two"}


async def test_a_binding_may_audit_what_does_not_hold(evaluator: Evaluator) -> None:
    spec = {"validations": [{"expression": "true"}, {"expression": "false", "message": "no"}]}
    policies = Policies(spec, {"validationActions": ["Audit", "Warn"]})
    ((key, value),) = (await annotated(evaluator, policies)).items()
    assert key == "validation.policy.admission.k8s.io/validation_failure"
    assert json.loads(value) == [
        {
            "message": "no", "policy": "p", "binding": "b0", "expressionIndex": 1,
            "validationActions": ["Audit", "Warn"],
        }
    ]  # fmt: skip


async def test_an_annotation_without_a_value_fails_by_policy(evaluator: Evaluator) -> None:
    listed = [{"key": "k", "valueExpression": "object.absent"}]
    actions = {"validationActions": ["Deny"]}
    with pytest.raises(StatusError, match="no such key: absent"):
        await annotated(evaluator, Policies({"auditAnnotations": listed}, actions))
    ignoring = Policies({"auditAnnotations": listed, "failurePolicy": "Ignore"}, actions)
    assert await annotated(evaluator, ignoring) == {}


def test_annotations_are_bounded() -> None:
    request = write(obj=pod()).request
    for index in range(1000):
        request.annotate(f"k{index}", "x" * 20_000)
    assert len(request.annotations) == 256
    assert {len(value) for value in request.annotations.values()} == {10 * 1024}
    request.annotate("k0", "other")
    assert request.annotations["k0"].startswith("xx")
