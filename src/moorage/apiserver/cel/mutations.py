"""Mutations: the expressions of mutating policies, and their values as JSON.

An expression has an apply configuration as its value, `Object{…}`, or a list of patch operations,
`[JSONPatch{…}]`. Applying them is not done here. Source: API docs "Mutating Admission Policy";
apiserver `admission/plugin/policy/mutating/patch` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from moorage.apiserver.cel.construction import (
    JSON_PATCH,
    OBJECT,
    TYPE_KEY,
    type_mismatches,
    without_types,
)
from moorage.apiserver.cel.messages import Mutation, PolicyInput
from moorage.apiserver.cel.policy_scope import Policy, PolicyScope, Spending, compile_condition
from moorage.apiserver.cel.program import RUNTIME_BUDGET, Budget, EvaluationError, OutOfBudgetError
from moorage.apiserver.cel.values import CelType, Type

_MAP = Type.Map(Type.STRING, Type.DYN)


class MutationForm(NamedTuple):
    """One way of saying a mutation: its field in the policy and the type of its expression."""

    field: str
    type: CelType
    type_name: str
    finish: Callable[[Any], Any]
    """Returns the JSON of a value. Raises EvaluationError."""


class CompiledMutations:
    """The programs of a mutating policy."""

    def __init__(self, policy: Policy) -> None:
        """Compile a policy's expressions. Raises CompileError."""
        self._scope = PolicyScope(policy)
        self._mutations = []
        for mutation in policy["mutations"]:
            form = MUTATIONS[mutation["patchType"]]
            expression = mutation[form.field]["expression"]
            condition = compile_condition(expression, self._scope.types, has_constructions=True)
            self._mutations.append((form, condition))

    def evaluate(self, given: PolicyInput, params: Any, index: int) -> Mutation:
        """Evaluate a mutation for a request and one object of parameters.

        The match conditions belong to the first mutation: later ones see an object that it changed.
        """
        form, condition = self._mutations[index]
        values = self._scope.values(given, params)
        try:
            if index == 0 and not self._scope.matches(values):
                return Mutation(matches=False)
        except EvaluationError as error:
            return Mutation(matches=False, error=str(error))
        spending = Spending(Budget(RUNTIME_BUDGET))
        try:
            return Mutation(value=form.finish(condition.evaluate(values, spending)))
        except (EvaluationError, OutOfBudgetError) as error:
            return Mutation(error=str(error))


def _configuration(value: Any) -> Any:
    if not isinstance(value, Mapping) or value.get(TYPE_KEY) != OBJECT:
        raise EvaluationError(
            f"unsupported return type from ApplyConfiguration expression: {_name(value)}"
        )
    _check_types(value)
    return _json(without_types(value))


def _patch(value: Any) -> Any:
    if not isinstance(value, list):
        raise EvaluationError("type mismatch: JSONPatchType.expression should evaluate to array")
    return [_operation(item) for item in value]


def _operation(item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping) or item.get(TYPE_KEY) != JSON_PATCH:
        raise EvaluationError(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got "
            f"element of {_name(item)}"
        )
    operation = {"op": item.get("op", ""), "path": item.get("path", "")}
    if item.get("from"):
        operation["from"] = item["from"]
    if "value" in item:
        value = item["value"]
        if isinstance(value, Mapping) and TYPE_KEY in value:
            _check_types(value)
        operation["value"] = _json(without_types(value))
    return operation


def _check_types(value: Mapping[str, Any]) -> None:
    """Raise EvaluationError for types of objects that do not match the fields they are in."""
    if mismatches := list(type_mismatches(value)):
        raise EvaluationError("type mismatch: " + "\n".join(mismatches))


def _name(value: Any) -> str:
    return type(value).__name__


def _json(value: Any) -> Any:
    """Return a value as JSON. Raises EvaluationError for what has no such form."""
    match value:
        case None | bool() | str() | int() | float():
            return value
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise EvaluationError(f"map key {key!r} is not a string")
            return {key: _json(item) for key, item in value.items()}
        case list():
            return [_json(item) for item in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case datetime.timedelta():
            return f"{value.total_seconds():g}s"
    raise EvaluationError(f"evaluated to a type that could not marshal to JSON: {_name(value)}")


MUTATIONS = {
    "ApplyConfiguration": MutationForm("applyConfiguration", _MAP, OBJECT, _configuration),
    "JSONPatch": MutationForm("jsonPatch", Type.List(_MAP), f"list({JSON_PATCH})", _patch),
}
"""The ways of saying a mutation, by `patchType`."""
