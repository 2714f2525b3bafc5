"""Value validation of custom resources: what a schema says of values, beyond their structure.

A schema is compiled into one function per node; a valid object costs a few calls per field. Texts,
field paths and their order are those of kube-openapi's validator, whose errors clients show; no
library words them so (docs/decisions/072-custom-resource-validation.md). Source: API docs
"Validation", OpenAPI 3.0 "Schema Object".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.custom.formats import compile_pattern, fits_format
from moorage.apiserver.registry.custom.structure import Schema

Errors = list[FieldError]
Rule = Callable[[Any, str, Errors], None]
"""A value, its path and the list that errors are added to."""

_ROOT = "<nil>"
"""Path of an error that the validator does not attribute to a field."""


def compile_rules(schema: Schema) -> Rule:
    """Return the rule of a schema. Raises PatternError."""
    rules = list(_rules_of(schema))
    if len(rules) == 1:
        return rules[0]

    def check(value: Any, path: str, errors: Errors) -> None:
        for rule in rules:
            rule(value, path, errors)

    return check


def _rules_of(schema: Schema) -> Iterable[Rule]:
    yield from filter(
        None,
        (
            _type_rule(schema),
            _all_of_rule(schema),
            _any_of_rule(schema),
            _one_of_rule(schema),
            _not_rule(schema),
            _string_rule(schema),
            _number_rule(schema),
            _list_rule(schema),
            _enum_rule(schema),
            _object_rule(schema),
        ),
    )


def _type_rule(schema: Schema) -> Rule | None:
    expected = schema.get("type", "")
    is_either = bool(schema.get("x-kubernetes-int-or-string"))
    if not expected and not is_either:
        return None
    accepted = ("integer", "string") if is_either else (expected,)
    shown = ",".join(accepted)
    is_nullable = bool(schema.get("nullable"))
    format_ = schema.get("format", "")

    def check(value: Any, path: str, errors: Errors) -> None:
        if value is None:
            if not is_nullable:
                errors.append(_wrong_type(path, "null", shown))
            return
        actual = _type_of(value)
        if actual not in accepted and not (actual == "integer" and "number" in accepted):
            errors.append(_wrong_type(path, actual, shown))
        elif format_ and not fits_format(format_, value):
            errors.append(
                _type_error(path, value, f"{path} in body must be of type {format_}: {_go(value)}")
            )

    return check


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def _wrong_type(path: str, actual: str, expected: str) -> FieldError:
    return _type_error(path, actual, f'{path} in body must be of type {expected}: "{actual}"')


def _type_error(path: str, value: Any, detail: str) -> FieldError:
    error = FieldError.invalid(path or _ROOT, value, detail)
    return FieldError(error.field, "FieldValueTypeInvalid", error.text)


def _all_of_rule(schema: Schema) -> Rule | None:
    inner = [compile_rules(branch) for branch in schema.get("allOf", ())]
    if not inner:
        return None

    def check(value: Any, path: str, errors: Errors) -> None:
        inner_errors: Errors = []
        failed = 0
        for rule in inner:
            count = len(inner_errors)
            rule(value, path, inner_errors)
            failed += len(inner_errors) > count
        errors += inner_errors
        if failed:
            detail = "." if failed < len(inner) else ". None validated"
            errors.append(_whole(f'"{path}" must validate all the schemas (allOf){detail}'))

    return check


def _any_of_rule(schema: Schema) -> Rule | None:
    inner = [compile_rules(branch) for branch in schema.get("anyOf", ())]
    if not inner:
        return None

    def check(value: Any, path: str, errors: Errors) -> None:
        failures = _failures(inner, value, path)
        if all(failures):
            errors.append(_whole(f'"{path}" must validate at least one schema (anyOf)'))
            errors += _fewest(failures)

    return check


def _one_of_rule(schema: Schema) -> Rule | None:
    inner = [compile_rules(branch) for branch in schema.get("oneOf", ())]
    if not inner:
        return None

    def check(value: Any, path: str, errors: Errors) -> None:
        failures = _failures(inner, value, path)
        valid = sum(not failure for failure in failures)
        if valid == 1:
            return
        detail = f"Found {valid} valid alternatives" if valid else "Found none valid"
        text = f'"{path}" must validate one and only one schema (oneOf). {detail}'
        errors.append(_whole(text))
        if not valid:
            errors += _fewest(failures)

    return check


def _failures(rules: list[Rule], value: Any, path: str) -> list[Errors]:
    """Return the errors of each alternative; each is checked once, since they nest."""
    failures: list[Errors] = []
    for rule in rules:
        errors: Errors = []
        rule(value, path, errors)
        failures.append(errors)
    return failures


def _fewest(failures: list[Errors]) -> Errors:
    """Return the errors of the alternative that came closest."""
    return min(failures, key=len)


def _not_rule(schema: Schema) -> Rule | None:
    if not isinstance(schema.get("not"), dict):
        return None
    inner = compile_rules(schema["not"])

    def check(value: Any, path: str, errors: Errors) -> None:
        if _holds(inner, value, path):
            errors.append(_whole(f'"{path}" must not validate the schema (not)'))

    return check


def _holds(rule: Rule, value: Any, path: str) -> bool:
    errors: Errors = []
    rule(value, path, errors)
    return not errors


def _whole(text: str) -> FieldError:
    return FieldError.invalid(_ROOT, "", text)


def _string_rule(schema: Schema) -> Rule | None:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern", "")
    if longest is None and shortest is None and not pattern:
        return None
    matches = compile_pattern(pattern) if pattern else None

    def check(value: Any, path: str, errors: Errors) -> None:
        if not isinstance(value, str):
            return
        if longest is not None and len(value) > longest:
            errors.append(FieldError.too_long(path, longest))
        if shortest is not None and len(value) < shortest:
            text = f"{path} in body should be at least {shortest} chars long"
            errors.append(FieldError.invalid(path, value, text))
        if matches is not None and not matches(value):
            text = f"{path} in body should match '{pattern}'"
            errors.append(FieldError.invalid(path, value, text))

    return check


def _number_rule(schema: Schema) -> Rule | None:
    factor = schema.get("multipleOf")
    highest, lowest = schema.get("maximum"), schema.get("minimum")
    if factor is None and highest is None and lowest is None:
        return None
    below = bool(schema.get("exclusiveMaximum"))
    above = bool(schema.get("exclusiveMinimum"))

    def check(value: Any, path: str, errors: Errors) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if factor is not None and not _is_multiple(value, factor):
            errors.append(_bounded(path, value, f"a multiple of {_number(factor)}"))
        if highest is not None and (value >= highest if below else value > highest):
            relation = "less than" if below else "less than or equal to"
            errors.append(_bounded(path, value, f"{relation} {_number(highest)}"))
        if lowest is not None and (value <= lowest if above else value < lowest):
            relation = "greater than" if above else "greater than or equal to"
            errors.append(_bounded(path, value, f"{relation} {_number(lowest)}"))

    return check


def _bounded(path: str, value: float, bound: str) -> FieldError:
    return FieldError.invalid(path, value, f"{path} in body should be {bound}")


def _is_multiple(value: float, factor: float) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    quotient = value / factor
    return math.isfinite(quotient) and quotient.is_integer()


def _list_rule(schema: Schema) -> Rule | None:
    most, least = schema.get("maxItems"), schema.get("minItems")
    is_unique = bool(schema.get("uniqueItems")) or schema.get("x-kubernetes-list-type") == "set"
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    items = schema.get("items")
    inner = compile_rules(items) if isinstance(items, dict) else None
    if inner is None and most is None and least is None and not is_unique and not keys:
        return None

    def check(value: Any, path: str, errors: Errors) -> None:
        if not isinstance(value, list):
            return
        if inner is not None:
            for index, item in enumerate(value):
                inner(item, f"{path}[{index}]", errors)
        if least is not None and len(value) < least:
            text = f"{path} in body should have at least {least} items"
            errors.append(FieldError.invalid(path, len(value), text))
        if most is not None and len(value) > most:
            errors.append(FieldError.too_many(path, len(value), most))
        if is_unique:
            errors += _duplicates(value, path, lambda item: item)
        if keys:
            errors += _duplicates(value, path, lambda item: _key_of(item, keys))

    return check


def _key_of(item: Any, keys: tuple[str, ...]) -> Any:
    return {key: item.get(key) for key in keys} if isinstance(item, dict) else item


def _duplicates(items: list[Any], path: str, key: Callable[[Any], Any]) -> Errors:
    seen: set[str] = set()
    errors: Errors = []
    for index, item in enumerate(items):
        identity = json.dumps(key(item), sort_keys=True)
        if identity in seen:
            errors.append(FieldError.duplicate(f"{path}[{index}]", key(item)))
        seen.add(identity)
    return errors


def _enum_rule(schema: Schema) -> Rule | None:
    allowed = schema.get("enum")
    if not allowed:
        return None
    shown = [item if isinstance(item, str) else json.dumps(item) for item in allowed]

    def check(value: Any, path: str, errors: Errors) -> None:
        if not any(_is_equal(value, item) for item in allowed):
            errors.append(FieldError.not_supported(path, value, shown))

    return check


def _is_equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; true differs from 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _object_rule(schema: Schema) -> Rule | None:
    properties = {
        name: compile_rules(inner) for name, inner in schema.get("properties", {}).items()
    }
    additional = schema.get("additionalProperties")
    rest = compile_rules(additional) if isinstance(additional, dict) else None
    required = tuple(schema.get("required", ()))
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if not properties and rest is None and not required and most is None and least is None:
        return None

    def check(value: Any, path: str, errors: Errors) -> None:
        if not isinstance(value, dict):
            return
        if least is not None and len(value) < least:
            text = f"{path} in body should have at least {least} properties"
            errors.append(FieldError.invalid(path, len(value), text))
        if most is not None and len(value) > most:
            errors.append(FieldError.too_many(path, len(value), most))
        for name in required:
            if name not in value:
                errors.append(FieldError.required(f"{path}.{name}" if path else name))
        for name, member in value.items():
            rule = properties.get(name, rest)
            if rule is not None:
                rule(member, f"{path}.{name}" if path else name, errors)

    return check


def _number(value: float) -> str:
    """Format a bound as Go's %v does: without a fraction where it has none."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


def _go(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
