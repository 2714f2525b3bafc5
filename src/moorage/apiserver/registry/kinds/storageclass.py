"""StorageClasses. Source: storage defaults and validation of Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.claims.classes import is_marked_default
from moorage.api.errors import FieldError
from moorage.api.node_labels import DEPRECATED
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.provisioning import parameter_errors, provisioner_errors

_TYPES = "io.k8s.api.storage.v1"
_POLICIES = ("Delete", "Retain")
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_IMMUTABLE = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
_EXPRESSIONS = "matchLabelExpressions"


def default_storage_class(storage_class: Obj) -> None:
    """Set the API defaults of a StorageClass."""
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def validate_storage_class(storage_class: Obj) -> list[FieldError]:
    """Return the errors of a new StorageClass."""
    errors = [*provisioner_errors(storage_class.get("provisioner", ""), "provisioner")]
    errors += parameter_errors(storage_class.get("parameters", {}), "parameters")
    policy, mode = storage_class.get("reclaimPolicy", ""), storage_class.get("volumeBindingMode")
    if policy and policy not in _POLICIES:
        errors.append(FieldError.not_supported("reclaimPolicy", policy, _POLICIES))
    if mode is None:
        errors.append(FieldError.required("volumeBindingMode"))
    elif mode not in _BINDING_MODES:
        errors.append(FieldError.not_supported("volumeBindingMode", mode, _BINDING_MODES))
    return [*errors, *_topology_errors(storage_class.get("allowedTopologies", ()))]


def validate_storage_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: how volumes are made stays."""
    errors = validate_storage_class(new)
    for field in _IMMUTABLE:
        if new.get(field) != old.get(field):
            errors.append(FieldError.invalid(field, new.get(field), "field is immutable"))
    return errors


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


def _cells(storage_class: Obj, now: float) -> list[Any]:
    annotations = storage_class["metadata"].get("annotations", {})
    mark = " (default)" if is_marked_default(annotations) else ""
    return [
        name_of(storage_class) + mark,
        storage_class.get("provisioner", ""),
        storage_class.get("reclaimPolicy", "Delete"),
        storage_class.get("volumeBindingMode", "Immediate"),
        storage_class.get("allowVolumeExpansion", False),
        age_of(storage_class, now),
    ]


_FIELDS = f"{_TYPES}.StorageClass"
_PRINTER = Printer(
    columns=(
        NAME,
        Column("Provisioner", documented_by=f"{_FIELDS}.provisioner"),
        Column("ReclaimPolicy", documented_by=f"{_FIELDS}.reclaimPolicy"),
        Column("VolumeBindingMode", documented_by=f"{_FIELDS}.volumeBindingMode"),
        Column("AllowVolumeExpansion", documented_by=f"{_FIELDS}.allowVolumeExpansion"),
        AGE,
    ),
    cells=_cells,
)

STORAGE_CLASS = Kind(
    name="StorageClass",
    plural="storageclasses",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.StorageClass"),),
    is_namespaced=False,
    short_names=("sc",),
    strategy=Strategy(
        default=default_storage_class,
        validate=validate_storage_class,
        validate_update=validate_storage_class_update,
        warn=warn_storage_class,
        returns_deleted=True,
    ),
    printer=_PRINTER,
)
