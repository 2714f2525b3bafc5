"""Type checks of a policy's expressions against the schema of a kind that it matches.

Policies are compiled with objects of any type, so a field that a kind does not have is an error
only when a request comes. This check, whose result is advice in the policy's status, compiles the
expressions of the validations once more with the types of one kind. Source: API docs "Validating
Admission Policy" (type checking); apiserver `policy/validating/typechecking.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moorage.apiserver.cel.checked import CheckedExpression
from moorage.apiserver.cel.environment import make_typed_environment
from moorage.apiserver.cel.library import authorization
from moorage.apiserver.cel.messages import Problem
from moorage.apiserver.cel.program import CompileError, Program
from moorage.apiserver.cel.typed_schema import TypedSchema, in_words_of_kubernetes
from moorage.apiserver.cel.values import Schema

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
