"""Scope of a policy's expressions: what they see, and the match conditions.

Expressions see `object`, `oldObject`, `request`, `params`, `namespaceObject`, `authorizer` and, by
name, `variables`. Variables are evaluated first, in their order; one that has no value is an error
only where an expression reaches it. Source: API docs "Validating Admission Policy"; apiserver
`admission/plugin/cel` of Kubernetes 1.36.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from moorage.apiserver.cel.checked import CheckedExpression
from moorage.apiserver.cel.environment import make_environment, make_typed_environment
from moorage.apiserver.cel.library import authorization
from moorage.apiserver.cel.messages import PolicyInput, Problem
from moorage.apiserver.cel.program import (
    Budget,
    CompileError,
    EvaluationError,
    OutOfBudgetError,
    Program,
)
from moorage.apiserver.cel.typed_schema import TypedSchema, in_words_of_kubernetes
from moorage.apiserver.cel.values import CelType, Schema, Type

# Type checks of a policy's expressions against the schema of a kind that it matches.
#
# Policies are compiled with objects of any type, so a field that a kind does not have is an error
# only when a request comes. This check, whose result is advice in the policy's status, compiles
# the expressions of the validations once more with the types of one kind. Source: API docs
# "Validating Admission Policy" (type checking); apiserver `policy/validating/typechecking.go` of
# Kubernetes 1.36.

Policy = Mapping[str, Any]
"""The specification of a policy, as JSON."""

_ANY: Schema = {"x-kubernetes-int-or-string": True}
_TEXT: Schema = {"type": "string"}
_MOMENT: Schema = {"type": "string", "format": "date-time"}
_NUMBER: Schema = {"type": "integer"}
_PRIMITIVES: Mapping[int, Schema] = {
    1: {"type": "boolean"}, 2: _NUMBER, 4: {"type": "number"}, 5: _TEXT,
    6: {"type": "string", "format": "byte"},
}  # fmt: skip
"""Schemas by the number of `cel.expr.Type.PrimitiveType`; of unsigned integers there is none."""

_WELL_KNOWN: Mapping[int, Schema] = {2: _MOMENT, 3: {"type": "string", "format": "duration"}}
"""Schemas by the number of `cel.expr.Type.WellKnownType`."""


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


_KIND = _object(group=_TEXT, version=_TEXT, kind=_TEXT)
_RESOURCE = _object(group=_TEXT, version=_TEXT, resource=_TEXT)
_USER = _object(username=_TEXT, uid=_TEXT, groups=_list(_TEXT), extra=_map(_list(_TEXT)))
_REQUEST = _object(
    kind=_KIND, resource=_RESOURCE, subResource=_TEXT,
    requestKind=_KIND, requestResource=_RESOURCE, requestSubResource=_TEXT,
    name=_TEXT, namespace=_TEXT, operation=_TEXT, userInfo=_USER,
    dryRun={"type": "boolean"}, options=_ANY,
)  # fmt: skip
_CONDITION = _object(
    status=_TEXT, type=_TEXT, lastTransitionTime=_MOMENT, message=_TEXT, reason=_TEXT
)
_NAMESPACE_META = _object(
    name=_TEXT, generateName=_TEXT, namespace=_TEXT, labels=_map(_TEXT), annotations=_map(_TEXT),
    UID=_TEXT, creationTimestamp=_MOMENT, deletionGracePeriodSeconds=_NUMBER,
    deletionTimestamp=_MOMENT, generation=_NUMBER, resourceVersion=_TEXT, finalizers=_list(_TEXT),
)  # fmt: skip
_NAMESPACE = _object(
    metadata=_NAMESPACE_META,
    spec=_object(finalizers=_list(_TEXT)),
    status=_object(conditions=_list(_CONDITION), phase=_TEXT),
)


def type_problems(policy: Policy, kind: Schema, params: Schema | None) -> list[Problem]:
    """Return the errors of a policy's validations for objects of one kind.

    `kind` is the schema of the objects, `params` that of the parameters, None where there is none
    or where it is unknown; both without references. Paths start at the specification.
    """
    scope = _Scope(policy, kind, params)
    problems = []
    for path, expression in _expressions(policy):
        try:
            scope.compile(expression)
        except CompileError as error:
            problems.append(Problem(path, None, str(error)))
    return problems


def _expressions(policy: Policy) -> Iterator[tuple[str, str]]:
    for index, validation in enumerate(policy.get("validations", ())):
        yield f".validations[{index}].expression", validation["expression"]
        if text := validation.get("messageExpression"):
            yield f".validations[{index}].messageExpression", text


class _Scope:
    """The types of what the expressions see: those of variables are of their expressions."""

    def __init__(self, policy: Policy, kind: Schema, params: Schema | None) -> None:
        self._seen: dict[str, Schema] = {
            "object": kind,
            "oldObject": kind,
            "request": _REQUEST,
            "namespaceObject": _NAMESPACE,
        }
        if "paramKind" in policy:
            self._seen["params"] = _ANY if params is None else params
        self._environment: Any = None
        variables: dict[str, Schema] = {}
        for variable in policy.get("variables", ()):
            # One that does not compile is of any type: only validations are reported.
            try:
                type_ = self._type_of(self.compile(variable["expression"]))
            except CompileError:
                type_ = _ANY
            variables[variable["name"]] = type_
            self._seen["variables"] = _object(**variables)
            self._environment = None

    def compile(self, expression: str) -> Program:
        """Compile an expression. Raises CompileError, in the words of Kubernetes."""
        if self._environment is None:
            self._typed = TypedSchema(_object(**self._seen), is_resource=False)
            types = {name: self._typed.type_of(schema) for name, schema in self._seen.items()}
            self._environment = make_typed_environment(
                self._typed.pool, {**types, **authorization.VARIABLES}
            )
        try:
            return Program(self._environment, expression)
        except CompileError as error:
            raise CompileError(in_words_of_kubernetes(str(error))) from error

    def _type_of(self, program: Program) -> Schema:
        checked = CheckedExpression(program.serialized())
        return self._schema_of(checked.type_of(checked.root))

    def _schema_of(self, type_: Any) -> Schema:
        """Return the schema of values of a type in a checked expression; any where none fits."""
        match type_ and type_.WhichOneof("kind"):
            case "primitive":
                return _PRIMITIVES.get(type_.primitive, _ANY)
            case "well_known":
                return _WELL_KNOWN.get(type_.well_known, _ANY)
            case "list_type":
                return _list(self._schema_of(type_.list_type.elem_type))
            case "map_type" if type_.map_type.key_type.primitive == _STRING:
                return _map(self._schema_of(type_.map_type.value_type))
            case "message_type":
                return self._typed.schema_of(type_.message_type) or _ANY
        return _ANY


_STRING = 5


_CONDITIONS_BUDGET = 2_500_000
"""What all match conditions may cost for one request."""

_VARIABLES = "variables"
_UNBOUNDED = 1 << 62
_NO_SUCH_KEY = "no such key: "

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
