"""StorageClasses. Source: storage defaults and validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.claims.classes import is_marked_default
from moorage.api.errors import FieldError
from moorage.api.nodes import DEPRECATED
from moorage.apiserver.registry.declare.columns import AGE, column, marked_name, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    always,
    immutable,
    one_of,
    present,
    unless_empty,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.provisioning import parameter_errors, provisioner_errors

_TYPE = "io.k8s.api.storage.v1.StorageClass"
_EXPRESSIONS = "matchLabelExpressions"


def _topology_errors(terms: list[Obj]) -> Iterator[FieldError]:
    seen: set[frozenset[tuple[str, frozenset[str]]]] = set()
    for index, term in enumerate(terms):
        path = f"allowedTopologies[{index}].{_EXPRESSIONS}"
        values_of: dict[str, frozenset[str]] = {}
        for number, expression in enumerate(term.get(_EXPRESSIONS, ())):
            at, key = f"{path}[{number}]", expression.get("key", "")
            yield from _expression_errors(expression, at)
            if key in values_of:
                yield FieldError.duplicate(f"{at}.key", key)
            values_of[key] = frozenset(expression.get("values", ()))
        requirement = frozenset(values_of.items())
        if requirement in seen:
            yield FieldError.duplicate(path, "")
        seen.add(requirement)


def _expression_errors(expression: Obj, path: str) -> Iterator[FieldError]:
    values, key = expression.get("values", []), expression.get("key", "")
    if not values:
        yield FieldError.required(f"{path}.values")
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield FieldError.duplicate(f"{path}.values[{index}]", value)
        seen.add(value)
    for detail in names.qualified_name_errors(key):
        yield FieldError.invalid(f"{path}.key", key, detail)


def warn_storage_class(storage_class: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about deprecated node labels in the topologies."""
    del old
    return [
        f"allowedTopologies[{index}].{_EXPRESSIONS}[{number}].key: {DEPRECATED[expression['key']]}"
        for index, term in enumerate(storage_class.get("allowedTopologies", ()))
        for number, expression in enumerate(term.get(_EXPRESSIONS, ()))
        if expression.get("key", "") in DEPRECATED
    ]


def _is_default(storage_class: Obj) -> bool:
    return is_marked_default(storage_class["metadata"].get("annotations", {}))


validate_storage_class = validator(
    ("provisioner", always(provisioner_errors)),
    ("parameters", parameter_errors),
    ("reclaimPolicy", unless_empty(one_of("Delete", "Retain"))),
    ("volumeBindingMode", present, one_of("Immediate", "WaitForFirstConsumer")),
    ("allowedTopologies", without_path(_topology_errors)),
)

STORAGE_CLASS = Kind(
    name="StorageClass",
    plural="storageclasses",
    served=(Served(group="storage.k8s.io", version="v1", type=_TYPE),),
    is_namespaced=False,
    short_names=("sc",),
    strategy=Strategy(
        default=defaults(
            ("reclaimPolicy", "Delete"),
            ("volumeBindingMode", "Immediate"),
        ),
        validate=validate_storage_class,
        validate_update=update(
            validate_storage_class,
            after=immutable("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
        ),
        warn=warn_storage_class,
        returns_deleted=True,
    ),
    printer=printer(
        marked_name(_is_default),
        column("Provisioner", "provisioner", of=_TYPE),
        column("ReclaimPolicy", "reclaimPolicy", of=_TYPE, absent="Delete"),
        column("VolumeBindingMode", "volumeBindingMode", of=_TYPE, absent="Immediate"),
        column("AllowVolumeExpansion", "allowVolumeExpansion", of=_TYPE, absent=False),
        AGE,
    ),
)
