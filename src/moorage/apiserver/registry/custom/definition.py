"""Kinds of custom resource definitions: a stored definition becomes kinds that can be served.

Each version is a kind of its own, since schema, subresources, columns and selectable fields are the
version's; their objects are in one table. Source: API docs "Extend the Kubernetes API with
CustomResourceDefinitions"; strategies of apiextensions `registry/customresource` of Kubernetes
1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from moorage.api.errors import FieldError
from moorage.apiserver.registry.custom.conversion import Converter, Post
from moorage.apiserver.registry.custom.decoding import CustomType
from moorage.apiserver.registry.custom.expressions import expressions_of
from moorage.apiserver.registry.custom.printer_columns import PathError, printer_of
from moorage.apiserver.registry.custom.rules import compile_rules
from moorage.apiserver.registry.custom.structure import (
    NOTHING,
    Structure,
    compile_structure,
    types_of,
)
from moorage.apiserver.registry.custom.versions import Conversions, Versions, VersionView
from moorage.apiserver.registry.expressions import Expressions
from moorage.apiserver.registry.kind import (
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
from moorage.apiserver.registry.preparation import put
from moorage.apiserver.registry.schema.types import Type

GROUP = "apiextensions.k8s.io"
_ANY_OBJECT: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class CustomKind(msgspec.Struct, frozen=True):
    """The kinds of a definition, one for each version, that of the storage version first.

    `merge_types` has those of each type by the type's name.
    """

    kinds: tuple[Kind, ...]
    types: tuple[CustomType, ...]
    merge_types: dict[str, tuple[Type, ...]]


def kinds_of(definition: Obj, conversions: Conversions, post: Post) -> CustomKind:
    """Return the kinds of a definition whose names are accepted.

    Raises PatternError for what the validation of definitions refuses.
    """
    spec, metadata = definition["spec"], definition["metadata"]
    described = sorted(spec["versions"], key=lambda version: not version["storage"])
    types = {version["name"]: type_of(definition, version) for version in described}
    storage = described[0]["name"]
    is_remote = spec.get("conversion", {}).get("strategy") == "Webhook"
    stored = definition.get("status", {}).get("storedVersions", ())
    versions = Versions(
        group=spec["group"],
        identity=f"{metadata.get('uid', '')}/{metadata.get('generation', 0)}",
        types=types,
        storage=storage,
        unmarked=stored[0] if stored else storage,
        converter=Converter(definition, post) if is_remote else None,
        conversions=conversions,
    )
    for version in described:
        versions.kinds[version["name"]] = _kind(definition, described, version, versions)
    merge_types = {
        type_.name: tuple(types_of(type_.name, type_.structure)) for type_ in types.values()
    }
    return CustomKind(tuple(versions.kinds.values()), tuple(types.values()), merge_types)


def _kind(definition: Obj, described: list[Obj], own: Obj, versions: Versions) -> Kind:
    """Return the kind of one version of a definition."""
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    type_ = versions.types[own["name"]]
    others = [version for version in described if version is not own]
    has_status = "status" in own.get("subresources", {})
    return Kind(
        name=names["kind"],
        plural=names["plural"],
        served=(
            _served(spec["group"], own, type_),
            *(_other(spec["group"], own["name"], version, versions) for version in others),
        ),
        is_namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        verbs=ALL_VERBS,
        strategy=_strategy(type_, expressions_of(schema_of(own)), has_status=has_status),
        printer=_printer(own),
        subresources=_subresources(own),
        scale_paths=_scale_paths(own),
        selectable=tuple(
            SelectableField(field["jsonPath"].removeprefix("."), _field_names(field["jsonPath"]))
            for field in own.get("selectableFields", ())
        ),
        is_custom=True,
        singular_name=names.get("singular", ""),
        list_name=names.get("listKind", ""),
        view=VersionView(versions, own["name"]),
        stored_version=versions.storage,
    )


def _other(group: str, own: str, version: Obj, versions: Versions) -> Served:
    """Return another version with its conversions from and to the kind's own."""
    name = version["name"]
    return replace(
        _served(group, version, versions.types[name]),
        from_storage=partial(versions.convert_in_thread, own, name),
        to_storage=partial(versions.convert_in_thread, name, own),
        is_remote=versions.converter is not None,
    )


def type_of(definition: Obj, version: Obj) -> CustomType:
    """Return the type of one version of a definition, an item of its `spec.versions`.

    Raises PatternError for what the validation of definitions refuses.
    """
    spec = definition["spec"]
    schema = schema_of(version)
    return CustomType(
        name=f"{spec['group']}.{version['name']}.{spec['names']['kind']}",
        kind=spec["names"]["kind"],
        group=spec["group"],
        structure=compile_structure(schema),
        rule=compile_rules(schema),
    )


def schema_of(version: Obj) -> Obj:
    """Return the schema of a version; any object where it has none."""
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
        errors = storage.errors(new)
        return ratcheted(errors, new, old, storage.structure, storage.errors) if errors else []

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


# Ratcheting: an update may keep what a schema that has become stricter forbids.
#
# An error counts only where something on the way to it has changed: a value that equals the old one
# at the same place, found by keys, stays as it is. Source: KEP-4008; apiextensions
# `validation/ratcheting` of Kubernetes 1.36.

_WHOLE = re.compile(r'"([^"]*)" must (?:not )?validate')
_INDEX = re.compile(r"\[(\d+)\]")
_DUPLICATE = "FieldValueDuplicate"


def ratcheted(
    errors: list[FieldError],
    new: Obj,
    old: Obj,
    structure: Structure,
    errors_of: Callable[[Obj], Iterable[FieldError]],
) -> list[FieldError]:
    """Return the errors of an update that count. `errors_of` returns those of an object."""
    if any(error.kind == _DUPLICATE for error in errors) and any(
        error.kind == _DUPLICATE for error in errors_of(old)
    ):
        errors = [error for error in errors if error.kind != _DUPLICATE]
    return [error for error in errors if not _is_kept(new, old, structure, _path(error))]


def _path(error: FieldError) -> str:
    """Return the path of the value that an error is about; some have it in their text alone."""
    match = _WHOLE.search(error.text)
    return match.group(1) if match else error.field


def _is_kept(new: Any, old: Any, structure: Structure, path: str) -> bool:
    """Return whether a value on the path equals the old one at the same place."""
    while path:
        step = _step(new, old, structure, path)
        if step is None:
            return False
        new, old, structure, path = step
        if new == old:
            return True
    return False


def _step(
    new: Any, old: Any, structure: Structure, path: str
) -> tuple[Any, Any, Structure, str] | None:
    """Return the values and the rest of the path one step below, None without an old value."""
    if isinstance(new, dict) and isinstance(old, dict):
        keys = [key for key in new if path == key or path.startswith((f"{key}.", f"{key}["))]
        key = max(keys, key=len, default="")
        if not key or key not in old:
            return None
        inner = structure.properties.get(key) or structure.values or NOTHING
        return new[key], old[key], inner, path[len(key) :].removeprefix(".")
    match = _INDEX.match(path)
    if match and isinstance(new, list) and isinstance(old, list) and structure.items is not None:
        item = new[int(match.group(1))]
        before = _same_item(item, old, structure)
        if before is not None:
            return item, before, structure.items, path[match.end() :].removeprefix(".")
    return None


def _same_item(item: Any, old: list[Any], structure: Structure) -> Any:
    """Return the old item of the same keys, None without one or in a list without keys."""
    if structure.list_type != "map" or not isinstance(item, dict):
        return None
    wanted = [item.get(key) for key in structure.list_keys]
    for candidate in old:
        if not isinstance(candidate, dict):
            continue
        if [candidate.get(key) for key in structure.list_keys] == wanted:
            return candidate
    return None
