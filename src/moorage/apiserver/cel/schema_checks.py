"""Checks of a schema's rules when it is written: whether they compile, and what they can cost.

A rule that stands below lists and maps is evaluated once for each of their elements: its cost is
multiplied by how many there can be. Source: apiextensions `validation.go`, `cel_validation.go`,
`schema/cel/compilation.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.apiserver.cel.checked import CheckedExpression, Declared, declare
from moorage.apiserver.cel.costs import LARGEST, estimated_cost
from moorage.apiserver.cel.environment import make_typed_environment
from moorage.apiserver.cel.messages import Problem
from moorage.apiserver.cel.program import CompileError, Program
from moorage.apiserver.cel.schema_rules import Scope, is_embedded, scope_of, uses_old
from moorage.apiserver.cel.typed_schema import TypedSchema, in_words_of_kubernetes
from moorage.apiserver.cel.values import CelType, Schema, Type

RULE_LIMIT = 10_000_000
"""The most that one expression may be estimated to cost."""

SCHEMA_LIMIT = 100_000_000
"""The most that all expressions of a schema may be estimated to cost."""

_REQUEST_BYTES = 3 * 1024 * 1024
_NAMED = 4
_CONTRIBUTION = SCHEMA_LIMIT // 100
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)
_FAR = 100.0
_NEAR = 1.5


@dataclass(slots=True)
class _Total:
    """What all expressions cost, with the paths of those that matter."""

    cost: int = 0
    paths: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        self.cost = min(self.cost + cost, LARGEST)
        if cost >= _CONTRIBUTION:
            self.paths.append((cost, path))

    def problems(self) -> Iterator[Problem]:
        if self.cost <= SCHEMA_LIMIT:
            return
        detail = (
            "contributed to estimated rule cost total exceeding cost limit for entire "
            "OpenAPIv3 schema"
        )
        for _, path in sorted(self.paths, key=lambda one: -one[0])[:_NAMED]:
            yield Problem(path, None, detail, is_cost=True)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield Problem("", None, _excess(name, self.cost, SCHEMA_LIMIT), is_cost=True)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node of the schema. `count`: how often it can occur, None without a bound.

    `uncorrelatable`: a list above it, whose items have no earlier values.
    """

    path: str = ""
    count: int | None = 1
    uncorrelatable: str | None = None
    is_resource: bool = True

    def below(self, part: str, schema: Schema, own: Schema, *, is_lost: bool = False) -> _Place:
        most = _most_elements(schema)
        count = None if most is None or self.count is None else min(self.count * most, LARGEST)
        return _Place(
            f"{self.path}{part}",
            count,
            self.uncorrelatable or (self.path if is_lost else None),
            is_embedded(own),
        )


def schema_problems(schema: Schema) -> list[Problem]:
    """Return the errors of the rules of a schema that is otherwise valid."""
    checks = _Checks()
    return [*checks.problems(schema, schema, _Place()), *checks.total.problems()]


class _Checks:
    def __init__(self) -> None:
        self._typed: TypedSchema
        """The types of the node whose rules are compiled: fewer than those of the whole schema."""
        self._environments: dict[str, Any] = {}
        self.total = _Total()

    def problems(self, rules: Schema, schema: Schema, place: _Place) -> Iterator[Problem]:
        """Yield the problems of a node and of those below. `rules` has the rules of the node."""
        for name, inner in sorted((rules.get("properties") or {}).items()):
            own = (schema.get("properties") or {}).get(name)
            if own is not None:
                yield from self.problems(
                    inner, own, place.below(f".properties[{name}]", schema, own)
                )
        for part in ("additionalProperties", "items"):
            inner, own = rules.get(part), schema.get(part)
            if isinstance(inner, dict) and isinstance(own, dict):
                is_lost = part == "items" and schema.get("x-kubernetes-list-type") != "map"
                below = place.below(f".{part}", schema, own, is_lost=is_lost)
                yield from self.problems(inner, own, below)
        for index, branch in enumerate(rules.get("allOf", ())):
            at = replace(place, path=f"{place.path}.allOf[{index}]")
            yield from self.problems(branch, schema, at)
        listed = rules.get("x-kubernetes-validations", ())
        if not listed:
            return
        self._typed = TypedSchema(schema, is_resource=place.is_resource)
        self._environments = {}
        declared = declare(schema, is_resource=place.is_resource)
        scope = scope_of(schema, is_resource=place.is_resource)
        for index, source in enumerate(listed):
            at = replace(place, path=f"{place.path}.x-kubernetes-validations[{index}]")
            yield from self._rule_problems(source, schema, scope, declared, at)

    def _rule_problems(
        self,
        source: Mapping[str, Any],
        schema: Schema,
        scope: Scope,
        declared: Declared | None,
        place: _Place,
    ) -> Iterator[Problem]:
        expression, path = source["rule"], place.path
        has_old = uses_old(expression, scope)
        shown = _shown(source)
        if has_old and place.uncorrelatable is not None:
            detail = "oldSelf cannot be used on the uncorrelatable portion of the schema within "
            yield Problem(f"{path}.rule", expression, f"{detail}{{root}}{place.uncorrelatable}")
            return
        types = self._types(source, schema, has_old=has_old)
        try:
            program = self._program(expression, types)
        except CompileError as error:
            yield Problem(f"{path}.rule", shown, f"compilation failed: {error}")
            return
        if not program.returns(Type.BOOL):
            yield Problem(f"{path}.rule", shown, "cel expression must evaluate to a bool")
        cost = estimated_cost(CheckedExpression(program.serialized()), declared)
        yield from self._cost_problems(f"{path}.rule", "rule", cost * _times(place, declared))
        if not has_old and "optionalOldSelf" in source:
            detail = "may not be set if oldSelf is not used in rule"
            yield Problem(f"{path}.optionalOldSelf", source["optionalOldSelf"], detail)
        if text := source.get("messageExpression"):
            yield from self._message_problems(text, types, shown, declared, path)

    def _message_problems(
        self,
        text: str,
        types: Mapping[str, CelType],
        shown: Any,
        declared: Declared | None,
        path: str,
    ) -> Iterator[Problem]:
        at = f"{path}.messageExpression"
        try:
            program = self._program(text, types)
        except CompileError as error:
            yield Problem(at, shown, f"messageExpression compilation failed: {error}")
            return
        if not program.returns(Type.STRING):
            yield Problem(at, shown, "messageExpression must evaluate to a string")
            return
        cost = estimated_cost(CheckedExpression(program.serialized()), declared)
        yield from self._cost_problems(at, "messageExpression", cost)

    def _cost_problems(self, path: str, name: str, cost: int) -> Iterator[Problem]:
        cost = min(cost, LARGEST)
        if cost > RULE_LIMIT:
            detail = _excess(f"estimated {name} cost", cost, RULE_LIMIT)
            yield Problem(path, None, detail, is_cost=True)
        self.total.add(path, cost)

    def _types(
        self, source: Mapping[str, Any], schema: Schema, *, has_old: bool
    ) -> dict[str, CelType]:
        own = self._typed.type_of(schema)
        is_optional = has_old and source.get("optionalOldSelf")
        return {"self": own, "oldSelf": Type.DYN if is_optional else own}

    def _program(self, expression: str, types: Mapping[str, CelType]) -> Program:
        """Compile an expression against the types of the schema. Raises CompileError."""
        key = str(types)
        if key not in self._environments:
            # One is enough: the rules of a node follow each other.
            self._environments = {key: make_typed_environment(self._typed.pool, types)}
        try:
            return Program(self._environments[key], expression)
        except CompileError as error:
            raise CompileError(in_words_of_kubernetes(str(error))) from error


def _times(place: _Place, declared: Declared | None) -> int:
    """Return how often a rule can be evaluated for one object."""
    if place.count is not None:
        return place.count
    least = 0 if declared is None else declared.least_bytes
    return _REQUEST_BYTES // (least + 1)


def _most_elements(schema: Schema) -> int | None:
    """Return by how many elements a schema multiplies what is below, None without a bound."""
    most: int | None = 1
    if schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    elif schema.get("type") == "array":
        most = schema.get("maxItems")
    return None if most is None else max(most, 0)


def _excess(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > _FAR:
        text = "more than 100x"
    elif factor < _NEAR:
        text = f"{factor:f}x"
    else:
        text = f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {text} {_ADVICE}"


def _shown(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule as errors show it: as the internal type of upstream."""
    return {
        "Rule": source["rule"],
        "Message": source.get("message", ""),
        "MessageExpression": source.get("messageExpression", ""),
        "Reason": source.get("reason"),
        "FieldPath": source.get("fieldPath", ""),
        "OptionalOldSelf": source.get("optionalOldSelf"),
    }
