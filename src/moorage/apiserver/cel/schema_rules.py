"""Rules of a structural schema (`x-kubernetes-validations`): compilation and evaluation.

Each node of the schema may have rules about its value, `self`. Rules that use `oldSelf` are about
changes: they are evaluated where a value had an earlier one. Source: API docs "Validation rules",
"Transition rules"; KEP-2876, KEP-4008 (ratcheting); apiextensions `schema/cel` of Kubernetes 1.36.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.messages import Violation
from moorage.apiserver.cel.program import (
    RUNTIME_BUDGET,
    Budget,
    CompileError,
    EvaluationError,
    OutOfBudgetError,
    Program,
)
from moorage.apiserver.cel.values import (
    CelType,
    Conversion,
    Schema,
    Type,
    as_resource,
    conversion_of,
    type_of,
)

_LONGEST_MESSAGE = 5 * 1024
_OPTIONAL = (
    "cel.bind(oldSelf, hasOldSelf ? optional.of(oldValue) : optional.none(), ({expression}\n))"
)
"""How `oldSelf` becomes an optional value, which the library does not take as input."""

_ENTRY = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")


class Scope(NamedTuple):
    """What the expressions of a node see: their types, and how its value becomes theirs."""

    type: CelType
    convert: Conversion


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, compiled. `source` is the rule as the schema has it."""

    source: Mapping[str, Any]
    program: Program
    message: Program | None
    uses_old: bool
    field_path: str

    @property
    def is_optional(self) -> bool:
        """Whether it is evaluated without an earlier value too."""
        return bool(self.source.get("optionalOldSelf"))

    @property
    def text(self) -> str:
        """The message, or the rule itself."""
        message: str = self.source.get("message") or self.source["rule"]
        return message.strip()


@dataclass(slots=True)
class Node:
    """The rules of one node of a schema, and of those below it that have some."""

    schema: Schema
    scope: Scope
    rules: list[Rule] = field(default_factory=list)
    properties: dict[str, Node] = field(default_factory=dict)
    values: Node | None = None
    items: Node | None = None
    all_of: list[Node] = field(default_factory=list)

    @property
    def has_rules(self) -> bool:
        below = (self.properties, self.values, self.items, self.all_of)
        return bool(self.rules) or any(below)


class _NoFurtherRulesError(Exception):
    """No further rules are evaluated: the last violation says why."""


def compile_schema(schema: Schema) -> Node | None:
    """Return the rules of a resource's schema, None without any. Raises CompileError."""
    return _compile(schema, schema, is_resource=True)


def _compile(rules: Schema, schema: Schema, *, is_resource: bool = False) -> Node | None:
    """Compile the rules of a node. `rules` has them: the node itself, or a branch of `allOf`."""
    node = Node(schema, scope_of(schema, is_resource=is_resource))
    for source in rules.get("x-kubernetes-validations", ()):
        node.rules.append(compile_rule(source, schema, node.scope))
    for name, inner in (rules.get("properties") or {}).items():
        own = (schema.get("properties") or {}).get(name)
        if own is not None and (below := _compile(inner, own, is_resource=is_embedded(own))):
            node.properties[name] = below
    node.values = _compile_below(rules, schema, "additionalProperties")
    node.items = _compile_below(rules, schema, "items")
    for branch in rules.get("allOf", ()):
        inner = _compile(branch, schema, is_resource=is_resource)
        if inner is not None:
            node.all_of.append(inner)
    return node if node.has_rules else None


def _compile_below(rules: Schema, schema: Schema, part: str) -> Node | None:
    inner, own = rules.get(part), schema.get(part)
    if not isinstance(inner, dict) or not isinstance(own, dict):
        return None
    return _compile(inner, own, is_resource=is_embedded(own))


def is_embedded(schema: Schema) -> bool:
    """Return whether the values of a schema are resources."""
    return bool(schema.get("x-kubernetes-embedded-resource"))


def scope_of(schema: Schema, *, is_resource: bool) -> Scope:
    """Return the variables of the expressions about the values of a schema."""
    seen = as_resource(schema) if is_resource else schema
    return Scope(type_of(seen), conversion_of(seen))


def compile_rule(source: Mapping[str, Any], schema: Schema, scope: Scope) -> Rule:
    """Compile a rule and its message. Raises CompileError."""
    expression = source["rule"]
    has_old = uses_old(expression, scope)
    program = _compile_in(expression, source, scope, has_old=has_old)
    if not program.returns(Type.BOOL):
        raise CompileError("cel expression must evaluate to a bool")
    message = None
    if text := source.get("messageExpression"):
        message = _compile_in(text, source, scope, has_old=has_old)
    path = "".join(_field_path(source["fieldPath"], schema)) if source.get("fieldPath") else ""
    return Rule(source, program, message, has_old, path)


def uses_old(expression: str, scope: Scope) -> bool:
    """Return whether an expression refers to `oldSelf`: it does not compile without."""
    if "oldSelf" not in expression:
        return False
    try:
        Program(make_environment({"self": scope.type}), expression)
    except CompileError:
        return True
    return False


def _compile_in(
    expression: str, source: Mapping[str, Any], scope: Scope, *, has_old: bool
) -> Program:
    if not (has_old and source.get("optionalOldSelf")):
        environment = make_environment({"self": scope.type, "oldSelf": scope.type})
        return Program(environment, expression, is_typed=True)
    # For the errors, which show the expression as it was written.
    Program(make_environment({"self": scope.type, "oldSelf": Type.DYN}), expression)
    variables = {"self": scope.type, "oldValue": scope.type, "hasOldSelf": Type.BOOL}
    optional = _OPTIONAL.format(expression=expression)
    return Program(make_environment(variables), optional, is_typed=True)


def _field_path(path: str, schema: Schema) -> Iterator[str]:
    """Yield the parts of a rule's `fieldPath` as errors show it: fields, and keys of maps."""
    is_first = True
    for match in _ENTRY.finditer(path):
        name = match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2])
        properties = schema.get("properties") or {}
        if name in properties:
            yield name if is_first else f".{name}"
            schema = properties[name]
        else:
            yield f"[{name}]"
            values = schema.get("additionalProperties")
            schema = values if isinstance(values, dict) else {}
        is_first = False


def violations_of(
    node: Node, new: Any, old: Any, budget_units: int = RUNTIME_BUDGET
) -> list[Violation]:
    """Evaluate the rules for an object. `old` is its earlier state, None for a new one.

    `budget_units`: what all evaluations may cost together.
    """
    evaluation = _Evaluation(Budget(budget_units))
    with contextlib.suppress(_NoFurtherRulesError):
        evaluation.check(node, new, old, "", is_unchanged=old is not None and new == old)
    return evaluation.found


class _Evaluation:
    """The evaluation of all rules for one object."""

    def __init__(self, budget: Budget) -> None:
        self.found: list[Violation] = []
        self._budget = budget

    def check(self, node: Node, new: Any, old: Any, path: str, *, is_unchanged: bool) -> None:
        """Evaluate the rules of a node and of those below. Raises _NoFurtherRulesError."""
        if new is None:
            return
        if node.rules:
            self._check_rules(node, new, old, path, is_unchanged=is_unchanged)
        for branch in node.all_of:
            self.check(branch, new, old, path, is_unchanged=is_unchanged)
        if isinstance(new, list) and node.items is not None:
            earlier = _EarlierItems(node.schema, old)
            for index, item in enumerate(new):
                was = earlier.of(item)
                same = is_unchanged or (was is not None and item == was)
                self.check(node.items, item, was, f"{path}[{index}]", is_unchanged=same)
        elif isinstance(new, dict):
            self._check_fields(node, new, old, path, is_unchanged=is_unchanged)

    def _check_fields(
        self, node: Node, new: dict[str, Any], old: Any, path: str, *, is_unchanged: bool
    ) -> None:
        earlier = old if isinstance(old, dict) else {}
        for name, value in new.items():
            below = node.properties.get(name)
            at = f"{path}.{name}" if path else name
            if below is None and node.values is not None:
                below, at = node.values, f"{path}[{name}]"
            if below is not None:
                was = earlier.get(name)
                same = is_unchanged or (was is not None and value == was)
                self.check(below, value, was, at, is_unchanged=same)

    def _check_rules(
        self, node: Node, new: Any, old: Any, path: str, *, is_unchanged: bool
    ) -> None:
        convert, kind = node.scope.convert, node.schema.get("type", "")
        if self._budget.remaining <= 0:
            raise self._stop(Violation(path, str(OutOfBudgetError()), value=kind))
        values = {"self": convert(new)}
        values["oldSelf"] = values["oldValue"] = convert(old) if old is not None else values["self"]
        values["hasOldSelf"] = old is not None
        for rule in node.rules:
            if rule.uses_old and old is None and not rule.is_optional:
                continue
            try:
                holds = rule.program.evaluate(values, self._budget)
            except OutOfBudgetError as error:
                raise self._stop(Violation(path, str(error), value=kind)) from error
            except EvaluationError as error:
                violation = Violation(path, _failure(error, rule), value=kind)
                if error.is_limit:
                    raise self._stop(violation) from error
                self.found.append(violation)
                continue
            if holds is not True:
                self._report(
                    rule, values, new, kind, path, is_warning=is_unchanged and not rule.uses_old
                )

    def _report(
        self,
        rule: Rule,
        values: Mapping[str, Any],
        new: Any,
        kind: str,
        path: str,
        *,
        is_warning: bool,
    ) -> None:
        """Add the violation of a rule that does not hold. Raises _NoFurtherRulesError."""
        if rule.field_path:
            path = f"{path}.{rule.field_path}" if path else rule.field_path
        try:
            detail = _evaluated_message(rule, values, self._budget)
        except (OutOfBudgetError, EvaluationError) as error:
            raise self._stop(
                Violation(path, _message_failure(error, rule), value=kind, is_warning=is_warning)
            ) from error
        if not detail:
            has_message = bool(rule.source.get("message"))
            detail = rule.text if has_message else f"failed rule: {rule.text}"
        is_structure = kind in ("object", "array")
        self.found.append(
            Violation(
                path,
                detail,
                reason=rule.source.get("reason") or "FieldValueInvalid",
                value=None if is_structure else new,
                shows_value=not is_structure,
                is_warning=is_warning,
            )
        )

    def _stop(self, violation: Violation) -> _NoFurtherRulesError:
        """Add the last violation, and return what ends the evaluation."""
        self.found.append(violation)
        return _NoFurtherRulesError()


class _EarlierItems:
    """The items of a list before the change. Only lists of type `map` say which is which."""

    def __init__(self, schema: Schema, old: Any) -> None:
        self._keys: tuple[str, ...] = ()
        self._by_key: dict[tuple[str, ...], Any] = {}
        if schema.get("x-kubernetes-list-type") == "map" and isinstance(old, list):
            self._keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
            self._by_key = {self._key(item): item for item in old if isinstance(item, dict)}

    def of(self, item: Any) -> Any:
        """Return the item's former value, None for a new one."""
        return self._by_key.get(self._key(item)) if isinstance(item, dict) else None

    def _key(self, item: dict[str, Any]) -> tuple[str, ...]:
        return tuple(repr(item.get(key)) for key in self._keys)


def _failure(error: EvaluationError, rule: Rule) -> str:
    text = str(error)
    if text.startswith("no such overload"):
        return (
            f"'{text}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {rule.text}"
        )
    if error.is_limit:
        return (
            f"'{text}': no further validation rules will be run due to call cost exceeds limit "
            f"for rule: {rule.text}"
        )
    return f"{text} evaluating rule: {rule.text}"


def _evaluated_message(rule: Rule, values: Mapping[str, Any], budget: Budget) -> str:
    """Return the value of `messageExpression`, empty where it has no usable one.

    Raises OutOfBudgetError; EvaluationError where the evaluation was cut off.
    """
    if rule.message is None:
        return ""
    try:
        message = rule.message.evaluate(values, budget)
    except EvaluationError as error:
        if error.is_limit:
            raise
        return ""
    text = message.strip() if isinstance(message, str) else ""
    return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


def _message_failure(error: Exception, rule: Rule) -> str:
    if isinstance(error, OutOfBudgetError):
        return (
            "messageExpression evaluation failed due to running out of cost budget, no further "
            "validation rules will be run"
        )
    shown = json.dumps(rule.source["messageExpression"], ensure_ascii=False)
    return (
        "no further validation rules will be run due to call cost exceeds limit for "
        f"messageExpression: {shown}"
    )
