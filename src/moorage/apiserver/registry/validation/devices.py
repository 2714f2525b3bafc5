"""Device validation: what claims, classes, slices and taint rules have in common.

CEL expressions are not compiled, only their length is checked. Source: resource validation of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.declared import DeclaredError, enum_errors, list_errors
from moorage.apiserver.registry.validation.device_names import declared_driver_errors
from moorage.apiserver.registry.validation.scheduling import node_term_errors

EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_SELECTORS_MAX = 32
_EXPRESSION_MAX_BYTES = 10 * 1024
_PARAMETERS_MAX_BYTES = 10 * 1024
_BINDING_CONDITIONS_MAX = 4


def default_tolerations(holder: Obj) -> None:
    """Set the default operator of the tolerations in a request or an allocation result."""
    for toleration in holder.get("tolerations", ()):
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def default_parameters(configurations: list[Obj]) -> None:
    """Put back empty parameters of device configurations.

    The canonical form has no empty objects, but a driver's parameters may be one. So parameters
    that are missing count as empty, which upstream rejects.
    """
    for configuration in configurations:
        if "opaque" in configuration:
            configuration["opaque"].setdefault("parameters", {})


def selector_errors(holder: Obj, path: str) -> Iterator[FieldError]:
    """Validate the selectors of a request or a class."""
    selectors = holder.get("selectors", [])
    yield from list_errors(selectors, f"{path}.selectors", _SELECTORS_MAX, _selector_errors)


def _selector_errors(selector: Obj, path: str) -> Iterator[FieldError]:
    if "cel" not in selector:
        yield FieldError.required(f"{path}.cel")
    elif len(selector["cel"].get("expression", "").encode()) > _EXPRESSION_MAX_BYTES:
        yield FieldError.too_long(f"{path}.cel.expression", _EXPRESSION_MAX_BYTES)


def configuration_errors(
    configuration: Obj, path: str, *, is_stored: bool = False
) -> Iterator[FieldError]:
    """Validate a device configuration. Parameters that are stored already may be long."""
    opaque, at = configuration.get("opaque"), f"{path}.opaque"
    if opaque is None:
        yield FieldError.required(at)
        return
    yield from declared_driver_errors(opaque.get("driver", ""), f"{at}.driver")
    limit = None if is_stored else _PARAMETERS_MAX_BYTES
    yield from raw_errors(opaque.get("parameters"), f"{at}.parameters", limit)


def raw_errors(value: Any, path: str, limit_bytes: int | None) -> Iterator[FieldError]:
    """Validate a required value of any content: a JSON object."""
    if limit_bytes is not None and len(msgspec.json.encode(value)) > limit_bytes:
        yield FieldError.too_long(path, limit_bytes)
    elif value is None:
        yield FieldError.required(path)
    elif not isinstance(value, dict):
        yield FieldError.invalid(path, "<value omitted>", "must be a valid JSON object")


def toleration_errors(holder: Obj, path: str) -> Iterator[FieldError]:
    """Validate the tolerations of a request or an allocation result."""
    tolerations = holder.get("tolerations", [])
    yield from list_errors(tolerations, f"{path}.tolerations", None, _toleration_errors)


def _toleration_errors(toleration: Obj, path: str) -> Iterator[FieldError]:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    for detail in names.qualified_name_errors(key) if key else ():
        yield DeclaredError.invalid(f"{path}.key", key, detail)
    if operator == "Exists" and value:
        yield FieldError.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    if operator == "Equal":
        yield from _label_value_errors(value, f"{path}.value")
    yield from enum_errors(operator, f"{path}.operator", _OPERATORS)
    if effect:
        yield from enum_errors(effect, f"{path}.effect", EFFECTS)


def taint_errors(taint: Obj, path: str, *, old_effect: str | None = None) -> Iterator[FieldError]:
    """Validate a taint. An effect that does not change is not looked at."""
    key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
    yield from key_errors(key, f"{path}.key")
    yield from _label_value_errors(value, f"{path}.value")
    if old_effect is None or effect != old_effect:
        yield from enum_errors(effect, f"{path}.effect", EFFECTS)


def key_errors(key: str, path: str) -> Iterator[FieldError]:
    """Validate a label key."""
    for detail in names.qualified_name_errors(key):
        yield FieldError.invalid(path, key, detail)


def _label_value_errors(value: str, path: str) -> Iterator[FieldError]:
    for detail in names.label_value_errors(value):
        yield FieldError.invalid(path, value, detail)


def node_selector_errors(selector: Obj, path: str) -> Iterator[FieldError]:
    """Validate a node selector whose values must be legal label values."""
    terms, at = selector.get("nodeSelectorTerms", []), f"{path}.nodeSelectorTerms"
    if not terms:
        yield FieldError.required(at, "must have at least one node selector term")
    for number, term in enumerate(terms):
        yield from node_term_errors(term, f"{at}[{number}]")
        for index, expression in enumerate(term.get("matchExpressions", ())):
            for position, value in enumerate(expression.get("values", ())):
                yield from _label_value_errors(
                    value, f"{at}[{number}].matchExpressions[{index}].values[{position}]"
                )


def binding_errors(holder: Obj, path: str) -> Iterator[FieldError]:
    """Validate the conditions that the binding of a device waits for, and that make it fail."""
    wanted = holder.get("bindingConditions", [])
    failing = holder.get("bindingFailureConditions", [])
    at, failing_at = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    yield from list_errors(wanted, at, _BINDING_CONDITIONS_MAX, key_errors)
    yield from list_errors(failing, failing_at, _BINDING_CONDITIONS_MAX, key_errors)
    yield from _repetition_errors(wanted, at, ())
    yield from _repetition_errors(failing, failing_at, wanted)
    if failing and not wanted:
        yield FieldError.invalid(
            at, None, "bindingConditions are required to use bindingFailureConditions"
        )
    if wanted and not failing:
        yield FieldError.invalid(
            failing_at, None, "bindingFailureConditions are required to use bindingConditions"
        )


def _repetition_errors(
    conditions: Iterable[str], path: str, others: Iterable[str]
) -> Iterator[FieldError]:
    seen: set[str] = set()
    excluded = set(others)
    for index, condition in enumerate(conditions):
        if condition in seen:
            yield FieldError.duplicate(f"{path}[{index}]", condition)
        seen.add(condition)
        if condition in excluded:
            yield FieldError.invalid(
                f"{path}[{index}]",
                condition,
                "bindingFailureConditions must not overlap with bindingConditions",
            )
