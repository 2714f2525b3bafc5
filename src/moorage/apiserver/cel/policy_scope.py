"""Scope of a policy's expressions: what they see, and the match conditions.

Expressions see `object`, `oldObject`, `request`, `params`, `namespaceObject`, `authorizer` and, by
name, `variables`. Variables are evaluated first, in their order; one that has no value is an error
only where an expression reaches it. Source: API docs "Validating Admission Policy"; apiserver
`admission/plugin/cel` of Kubernetes 1.36.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library import authorization
from moorage.apiserver.cel.messages import PolicyInput
from moorage.apiserver.cel.program import Budget, EvaluationError, OutOfBudgetError, Program
from moorage.apiserver.cel.values import CelType, Type

_CONDITIONS_BUDGET = 2_500_000
"""What all match conditions may cost for one request."""

_VARIABLES = "variables"
_UNBOUNDED = 1 << 62
_NO_SUCH_KEY = "no such key: "

Policy = Mapping[str, Any]
"""The specification of a policy, as JSON."""


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression and its program."""

    expression: str
    program: Program
    variables: frozenset[str]
    """The variables that the expression mentions."""

    def evaluate(self, values: Values, spending: Spending) -> Any:
        """Return the value. Raises OutOfBudgetError, and EvaluationError with the expression."""
        spending.pay_for(self.variables, values)
        try:
            return self.program.evaluate(values.known, spending.budget)
        except EvaluationError as error:
            raise EvaluationError(
                f"expression '{self.expression}' resulted in error: {values.explain(error)}"
            ) from error


@dataclass(slots=True)
class Values:
    """What expressions see, and the variables without a value, with the reason.

    `costs` are those of the variables, each with the variables that it mentions.
    """

    known: dict[str, Any]
    failed: dict[str, EvaluationError] = field(default_factory=dict)
    costs: dict[str, _VariableCost] = field(default_factory=dict)

    def explain(self, error: EvaluationError) -> str:
        """Return an error's text; that of a variable where the expression needed one."""
        text = str(error)
        failure = self.failed.get(text.removeprefix(_NO_SUCH_KEY))
        if failure is None or not text.startswith(_NO_SUCH_KEY):
            return text
        name = text.removeprefix(_NO_SUCH_KEY)
        return f'composited variable "{name}" fails to evaluate: {failure}'


class _VariableCost(NamedTuple):
    own: int
    variables: frozenset[str]


class Spending:
    """What the expressions of one kind may still cost, and the variables that are paid for.

    Upstream evaluates a variable when an expression needs it, once for the validations, the
    messages and the annotations each; it is paid for with the first expression that mentions it.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._paid: set[str] = set()

    def pay_for(self, variables: Iterable[str], values: Values) -> None:
        """Take the costs of variables off the budget. Raises OutOfBudgetError."""
        for name in variables:
            cost = values.costs.get(name)
            if cost is not None and name not in self._paid:
                self._paid.add(name)
                self.pay_for(cost.variables, values)
                self.budget.spend(cost.own)


class PolicyScope:
    """The variables and match conditions of a policy, compiled."""

    def __init__(self, policy: Policy) -> None:
        """Compile them. Raises CompileError."""
        self.types = types_of(policy)
        self._variables = [
            (variable["name"], compile_condition(variable["expression"], self.types))
            for variable in policy.get("variables", ())
        ]
        self._conditions = [
            compile_condition(condition["expression"], self.types)
            for condition in policy.get("matchConditions", ())
        ]

    def values(self, given: PolicyInput, params: Any) -> Values:
        """Return the variables of the expressions for a request, with their values."""
        variables: dict[str, Any] = {}
        values = Values(
            {
                "object": given.object,
                "oldObject": given.old_object,
                "request": given.request,
                "namespaceObject": given.namespace,
                "params": params,
                "variables": variables,
                **authorization.values_for(given.request),
            }
        )
        for name, condition in self._variables:
            budget = Budget(_UNBOUNDED)
            try:
                variables[name] = _as_input(condition.program.evaluate(values.known, budget))
            except EvaluationError as error:
                values.failed[name] = EvaluationError(values.explain(error))
            cost = _UNBOUNDED - budget.remaining
            values.costs[name] = _VariableCost(cost, condition.variables)
        return values

    def matches(self, values: Values) -> bool:
        """Return whether all match conditions hold. Raises EvaluationError if none is false."""
        errors = []
        spending = Spending(Budget(_CONDITIONS_BUDGET))
        for condition in self._conditions:
            try:
                if condition.evaluate(values, spending) is False:
                    return False
            except OutOfBudgetError as error:
                raise EvaluationError(str(error)) from error
            except EvaluationError as error:
                errors.append(str(error))
        if errors:
            raise EvaluationError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True


def types_of(policy: Policy) -> dict[str, CelType]:
    """Return the types of what a policy's expressions see.

    Parameters are there only where it has a kind of them, variables only where it has some.
    """
    names = ["object", "oldObject", "request", "namespaceObject"]
    if "paramKind" in policy:
        names.append("params")
    if policy.get("variables"):
        names.append(_VARIABLES)
    return {**dict.fromkeys(names, Type.DYN), **authorization.VARIABLES}


def compile_condition(
    expression: str, types: Mapping[str, CelType], *, has_constructions: bool = False
) -> Condition:
    """Compile an expression. Raises CompileError."""
    environment = make_environment(types)
    program = Program(environment, expression, has_constructions=has_constructions)
    variables = frozenset(program.fields_of(_VARIABLES)) if _VARIABLES in types else frozenset()
    return Condition(expression, program, variables)


def _as_input(value: Any) -> Any:
    """Return a value as the library takes it again: spans and moments as messages."""
    match value:
        case dict():
            return {key: _as_input(item) for key, item in value.items()}
        case list():
            return [_as_input(item) for item in value]
        case datetime.timedelta():
            span = Duration()
            span.FromTimedelta(value)
            return span
        case datetime.datetime():
            moment = Timestamp()
            moment.FromDatetime(value)
            return moment
    return value
