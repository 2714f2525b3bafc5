"""Devices of the resource group: their names, attributes, selectors and taints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.declared import (
    DeclaredError,
    enum_errors,
    list_errors,
    max_characters_error,
)
from moorage.apiserver.registry.validation.scheduling import node_term_errors

_DRIVER_MAX = 63
_ID_MAX_BYTES = 32
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CASELESS_MESSAGE = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'Example.com', regex used for validation is "
    rf"'{_LABEL}(\.{_LABEL})*')"
)
_NOT_QUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"
EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_SELECTORS_MAX = 32
_EXPRESSION_MAX_BYTES = 10 * 1024
_PARAMETERS_MAX_BYTES = 10 * 1024
_BINDING_CONDITIONS_MAX = 4
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_C_IDENTIFIER_MESSAGE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    f"validation is '{_C_IDENTIFIER.pattern}')"
)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def label_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of a request or a device: a DNS label."""
    for detail in names.dns_label_errors(name):
        yield FieldError.invalid(path, name, detail)


def driver_errors(driver: str, path: str) -> Iterator[FieldError]:
    """Validate a driver's name: a DNS subdomain of up to 63 bytes, in which case is ignored."""
    if not driver:
        yield FieldError.required(path)
        return
    if len(driver.encode()) > _DRIVER_MAX:
        yield FieldError.too_long(path, _DRIVER_MAX)
    for detail in names.dns_subdomain_errors(driver.lower()):
        yield FieldError.invalid(path, driver, detail)


def declared_driver_errors(driver: str, path: str) -> Iterator[FieldError]:
    """Validate a driver's name where upstream declares the rule."""
    if not driver:
        yield DeclaredError.required(path)
        return
    for detail in names.dns_subdomain_errors(driver.lower()):
        is_length = detail.startswith("must")
        yield DeclaredError.invalid(path, driver, detail if is_length else _CASELESS_MESSAGE)
    if len(driver) > _DRIVER_MAX:
        yield max_characters_error(path, _DRIVER_MAX)


def pool_errors(pool: str, path: str) -> Iterator[FieldError]:
    """Validate a pool's name: DNS subdomains separated by slashes."""
    if not pool:
        yield FieldError.required(path)
        return
    if len(pool.encode()) > names.SUBDOMAIN_MAX:
        yield FieldError.too_long(path, names.SUBDOMAIN_MAX)
    for part in pool.split("/"):
        for detail in names.dns_subdomain_errors(part):
            yield FieldError.invalid(path, part, detail)


def declared_pool_errors(pool: str, path: str) -> Iterator[FieldError]:
    """Validate a pool's name where upstream declares the rule."""
    if not pool:
        yield DeclaredError.required(path)
        return
    if len(pool.encode()) > names.SUBDOMAIN_MAX:
        yield DeclaredError.too_long(path, names.SUBDOMAIN_MAX)
    for index, part in enumerate(pool.split("/")):
        if not part:
            yield DeclaredError.invalid(path, pool, f"segment {index}: must not be empty")
            continue
        for detail in names.dns_subdomain_errors(part):
            yield DeclaredError.invalid(path, part, f"segment {index}: {detail}")


def attribute_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of an attribute or a capacity: `[domain/]identifier`."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        yield from _identifier_errors(name, path, FieldError)
        return
    if "/" in identifier:
        return  # As upstream, which compares with one and two parts only.
    if not domain:
        yield FieldError.invalid(path, "", "the domain must not be empty")
    else:
        yield from driver_errors(domain, path)
    if not identifier:
        yield FieldError.invalid(path, "", "the name must not be empty")
    else:
        yield from _identifier_errors(identifier, path, FieldError)


def declared_attribute_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of an attribute in a constraint: `domain/identifier`."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        yield from _identifier_errors(name, path, DeclaredError)
        yield DeclaredError.invalid(path, name, _NOT_QUALIFIED)
        return
    if "/" in identifier:
        return
    if not domain:
        yield DeclaredError.invalid(path, "", "prefix must not be empty")
    elif len(domain.encode()) > _DRIVER_MAX:
        yield DeclaredError.too_long(path, _DRIVER_MAX)
    for detail in names.dns_subdomain_errors(domain) if domain else ():
        yield DeclaredError.invalid(path, domain, f"prefix: {detail}")
    if not identifier:
        yield DeclaredError.invalid(path, "", "name must not be empty")
    else:
        yield from _identifier_errors(identifier, path, DeclaredError)


def _identifier_errors(identifier: str, path: str, error: type[FieldError]) -> Iterator[FieldError]:
    if len(identifier.encode()) > _ID_MAX_BYTES:
        yield error.too_long(path, _ID_MAX_BYTES)
    if not _C_IDENTIFIER.fullmatch(identifier):
        yield error.invalid(path, identifier, _C_IDENTIFIER_MESSAGE)


def share_errors(holder: dict[str, str], path: str) -> Iterator[FieldError]:
    """Validate the optional identifier of a share of a device."""
    share = holder.get("shareID")
    if share is not None and not _UUID.fullmatch(share):
        yield DeclaredError.invalid(
            f"{path}.shareID", share, "must be a lowercase UUID in 8-4-4-4-12 format"
        )


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
