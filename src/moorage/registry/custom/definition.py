"""Kinds of custom resource definitions: a stored definition becomes a `Kind` that can be served.

Source: API docs "Extend the Kubernetes API with CustomResourceDefinitions"; strategies of
apiextensions `registry/customresource` of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moorage.api.errors import FieldError
from moorage.registry.custom.decoding import CustomType
from moorage.registry.custom.expressions import expressions_of
from moorage.registry.custom.printer_columns import PathError, printer_of
from moorage.registry.custom.rules import compile_rules
from moorage.registry.custom.structure import compile_structure
from moorage.registry.custom.types import types_of
from moorage.registry.expressions import Expressions
from moorage.registry.kind import (
    ALL_VERBS,
    Kind,
    Obj,
    PartRules,
    Printer,
    ScalePaths,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    scale_subresource,
    status_subresource,
)
from moorage.registry.preparation import put
from moorage.registry.schema.types import Type

GROUP = "apiextensions.k8s.io"
_ANY_OBJECT: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class CustomKind:
    """A kind with the types of its versions, and the merge types of each by the type's name."""

    kind: Kind
    types: tuple[CustomType, ...]
    merge_types: dict[str, tuple[Type, ...]]


def kind_of(definition: Obj) -> CustomKind:
    """Return the kind of a definition whose names are accepted.

    Raises PatternError for what the validation of definitions refuses.
    """
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    group = spec["group"]
    versions = _storage_first(spec["versions"])
    types = tuple(_type(definition, version) for version in versions)
    storage = versions[0]
    has_status = "status" in storage.get("subresources", {})
    kind = Kind(
        name=names["kind"],
        plural=names["plural"],
        served=tuple(
            _served(group, version, type_) for version, type_ in zip(versions, types, strict=True)
        ),
        is_namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        verbs=ALL_VERBS,
        strategy=_strategy(types[0], expressions_of(_schema(storage)), has_status=has_status),
        printer=_printer(storage),
        subresources=_subresources(storage),
        scale_paths=_scale_paths(storage),
        selectable=tuple(
            SelectableField(field["jsonPath"].removeprefix("."), _field_names(field["jsonPath"]))
            for field in storage.get("selectableFields", ())
        ),
        is_custom=True,
        singular_name=names.get("singular", ""),
        list_name=names.get("listKind", ""),
    )
    return CustomKind(
        kind, types, {type_.name: tuple(types_of(type_.name, type_.structure)) for type_ in types}
    )


def _storage_first(versions: Iterable[Obj]) -> list[Obj]:
    return sorted(versions, key=lambda version: not version["storage"])


def _type(definition: Obj, version: Obj) -> CustomType:
    spec = definition["spec"]
    schema = _schema(version)
    return CustomType(
        name=f"{spec['group']}.{version['name']}.{spec['names']['kind']}",
        kind=spec["names"]["kind"],
        group=spec["group"],
        structure=compile_structure(schema),
        rule=compile_rules(schema),
    )


def _schema(version: Obj) -> Obj:
    schema: Obj = version.get("schema", {}).get("openAPIV3Schema") or _ANY_OBJECT
    return schema


def _served(group: str, version: Obj, type_: CustomType) -> Served:
    warning = ""
    if version.get("deprecated"):
        warning = version.get("deprecationWarning") or (
            f"{group}/{version['name']} {type_.kind} is deprecated"
        )
    return Served(
        group=group,
        version=version["name"],
        type=type_.name,
        warning=warning,
        is_served=version["served"],
    )


def _printer(version: Obj) -> Printer:
    """Return the columns of a version; those of any object where one has no legal JSONPath."""
    try:
        return printer_of(version.get("additionalPrinterColumns", ()))
    except PathError:
        return printer_of(())


def _subresources(version: Obj) -> dict[str, Subresource]:
    enabled = version.get("subresources", {})
    return {
        **(status_subresource() if "status" in enabled else {}),
        **(scale_subresource() if "scale" in enabled else {}),
    }


def _scale_paths(version: Obj) -> ScalePaths:
    scale = version.get("subresources", {}).get("scale", {})
    return ScalePaths(
        spec_replicas=_field_names(scale.get("specReplicasPath", "")),
        status_replicas=_field_names(scale.get("statusReplicasPath", "")),
        selector=_field_names(scale.get("labelSelectorPath", "")),
    )


def _field_names(path: str) -> tuple[str, ...]:
    """Return the names of a simple JSONPath like `.spec.replicas`."""
    return tuple(path.removeprefix(".").split(".")) if path else ()


def _strategy(
    storage: CustomType, expressions: Expressions | None, *, has_status: bool
) -> Strategy:
    def validate(obj: Obj) -> list[FieldError]:
        return storage.errors(obj)

    def validate_update(new: Obj, old: Obj) -> list[FieldError]:
        del old
        return storage.errors(new)

    ignored = ("metadata", "status") if has_status else ("metadata",)
    return Strategy(
        prepare_create=_drop_status if has_status else _nothing,
        prepare_update=_keep_status if has_status else _nothing,
        validate=validate,
        validate_update=validate_update,
        expressions=expressions,
        parts={
            "status": PartRules(_keep_all_but_status, validate_update, expressions=expressions),
            "scale": PartRules(validate=validate_update, expressions=expressions),
        },
        spec_of=_without(ignored),
        needs_revision_on_update=True,
    )


def _nothing(*_: Any) -> None:
    return None


def _drop_status(obj: Obj) -> None:
    obj.pop("status", None)


def _keep_status(new: Obj, old: Obj) -> None:
    put(new, "status", old.get("status"))


def _keep_all_but_status(new: Obj, old: Obj) -> None:
    """Keep everything but status and field ownership: what `/status` of a resource writes."""
    status, metadata = new.get("status"), new["metadata"]
    new.clear()
    new |= old
    new["metadata"] = {**old["metadata"]}
    for field in ("managedFields", "resourceVersion"):
        put(new["metadata"], field, metadata.get(field))
    put(new, "status", status)


def _without(fields: tuple[str, ...]) -> Callable[[Obj], Obj]:
    return lambda obj: {key: value for key, value in obj.items() if key not in fields}
