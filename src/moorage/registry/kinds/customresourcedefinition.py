"""CustomResourceDefinitions. Source: apiextensions validation and strategy of Kubernetes 1.37.

Not served yet, and refused at creation: conversion webhooks, CEL rules, the scale subresource and
selectable fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.registry.columns.cells import CREATED_AT
from moorage.registry.custom.patterns import PatternError, compile_pattern
from moorage.registry.custom.printer_columns import PathError, compile_path
from moorage.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.registry.preparation import keep_spec, keep_status

_TYPES = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that stands until every instance is deleted."""

_ESTABLISHED = "Established"
_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED_GROUPS = (".k8s.io", ".kubernetes.io")
_VERSION = re.compile(r"v[1-9]\d*(?:(?:alpha|beta)[1-9]\d*)?|[a-z]([-a-z0-9]*[a-z0-9])?")
_TYPES_OF_VALUES = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")
_COLUMN_FORMATS = (
    "int32", "int64", "float", "double", "byte", "date", "date-time", "password",
)  # fmt: skip
_LIST_TYPES = ("atomic", "set", "map")
_MAP_TYPES = ("atomic", "granular")
_JUNCTIONS = ("allOf", "anyOf", "oneOf")


def condition_of(definition: Obj, condition_type: str) -> Obj | None:
    """Return the condition of that type, None without one."""
    for condition in definition.get("status", {}).get("conditions", ()):
        if condition["type"] == condition_type:
            matching: Obj = condition
            return matching
    return None


def is_established(definition: Obj) -> bool:
    """Return whether a definition is served."""
    condition = condition_of(definition, _ESTABLISHED)
    return condition is not None and condition["status"] == "True"


def default_definition(definition: Obj) -> None:
    """Set the API defaults of a CustomResourceDefinition."""
    spec = definition.setdefault("spec", {})
    wanted = spec.setdefault("names", {})
    kind = wanted.get("kind", "")
    wanted.setdefault("singular", kind.lower())
    wanted.setdefault("listKind", f"{kind}List" if kind else "")
    spec.setdefault("conversion", {}).setdefault("strategy", "None")


def prepare_definition_create(definition: Obj) -> None:
    """Reset the status of a new definition; its storage version counts as stored."""
    stored = [
        version["name"]
        for version in definition["spec"].get("versions", ())
        if version.get("storage")
    ]
    definition["status"] = {"storedVersions": stored} if stored else {}


def mark_definition_deleted(definition: Obj) -> None:
    """Hold an established definition until its instances are deleted."""
    if not is_established(definition):
        return
    finalizers = definition["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)


def is_definition_held(definition: Obj) -> bool:
    """Return whether instances may remain: deletion begins by adding the finalizer."""
    return is_established(definition) and "deletionTimestamp" not in definition["metadata"]


def validate_definition(definition: Obj) -> list[FieldError]:
    """Return the errors of a new CustomResourceDefinition."""
    return [
        *_name_errors(definition),
        *_approval_errors(definition),
        *_spec_errors(definition["spec"]),
    ]


def validate_definition_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a CustomResourceDefinition."""
    spec, was = new["spec"], old["spec"]
    errors = validate_definition(new)
    if is_established(old):
        errors += _immutable("spec.scope", spec.get("scope"), was.get("scope"))
        errors += _immutable("spec.names.kind", spec["names"].get("kind"), was["names"].get("kind"))
    errors += _immutable("spec.group", spec.get("group"), was.get("group"))
    errors += _immutable(
        "spec.names.plural", spec["names"].get("plural"), was["names"].get("plural")
    )
    present = {version.get("name") for version in spec.get("versions", ())}
    for index, stored in enumerate(new.get("status", {}).get("storedVersions", ())):
        if stored not in present:
            detail = f"missing from spec.versions; {stored} was previously a storage version"
            errors.append(
                FieldError.invalid(
                    f"status.storedVersions[{index}]", stored,
                    f"{detail}, and must remain in spec.versions until a storage migration "
                    f"ensures no data remains persisted in {stored} and removes {stored} from "
                    "status.storedVersions",
                )
            )  # fmt: skip
    return errors


def _immutable(path: str, value: Any, before: Any) -> list[FieldError]:
    return [] if value == before else [FieldError.invalid(path, value, "field is immutable")]


def _name_errors(definition: Obj) -> list[FieldError]:
    spec = definition["spec"]
    expected = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    name = definition["metadata"].get("name", "")
    if name == expected:
        return []
    return [FieldError.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _approval_errors(definition: Obj) -> Iterator[FieldError]:
    group = definition["spec"].get("group", "")
    approval = definition["metadata"].get("annotations", {}).get(_APPROVAL)
    if group.endswith(_PROTECTED_GROUPS) and not approval:
        yield FieldError.required(
            f"metadata.annotations[{_APPROVAL}]",
            f'protected groups must have approval annotation "{_APPROVAL}", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )


def _spec_errors(spec: Obj) -> Iterator[FieldError]:
    group = spec.get("group", "")
    if not group:
        yield FieldError.required("spec.group")
    else:
        for detail in names.dns_subdomain_errors(group):
            yield FieldError.invalid("spec.group", group, detail)
        if "." not in group:
            yield FieldError.invalid(
                "spec.group", group, "should be a domain with at least one dot"
            )
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        if spec.get("scope"):
            yield FieldError.not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
        else:
            yield FieldError.required("spec.scope")
    yield from _versions_errors(spec.get("versions", []))
    yield from _resource_names_errors(spec["names"])
    strategy = spec.get("conversion", {}).get("strategy", "None")
    if strategy == "Webhook":
        yield FieldError.forbidden(
            "spec.conversion.strategy", "conversion webhooks are not called by Moorage yet"
        )
    elif strategy != "None":
        yield FieldError.not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))


def _resource_names_errors(wanted: Obj) -> Iterator[FieldError]:
    for field in ("plural", "singular"):
        path, value = f"spec.names.{field}", wanted.get(field, "")
        if not value:
            yield FieldError.required(path)
        else:
            for detail in names.dns_1035_label_errors(value):
                yield FieldError.invalid(path, value, detail)
    for field in ("kind", "listKind"):
        path, value = f"spec.names.{field}", wanted.get(field, "")
        if not value:
            yield FieldError.required(path)
        else:
            for detail in names.dns_1035_label_errors(value.lower()):
                yield FieldError.invalid(
                    path, value, f"may have mixed case, but should otherwise match: {detail}"
                )
    if wanted.get("kind") and wanted.get("kind") == wanted.get("listKind"):
        yield FieldError.invalid(
            "spec.names.listKind", wanted["listKind"], "kind and listKind may not be the same"
        )
    for field in ("shortNames", "categories"):
        for index, value in enumerate(wanted.get(field, ())):
            for detail in names.dns_1035_label_errors(value):
                yield FieldError.invalid(f"spec.names.{field}[{index}]", value, detail)


def _versions_errors(versions: list[Obj]) -> Iterator[FieldError]:
    if not versions:
        yield FieldError.required("spec.versions", "must have at least one version")
        return
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield FieldError.invalid(
            "spec.versions", versions, "must have exactly one version marked as storage version"
        )
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        if name in seen:
            yield FieldError.invalid(f"{path}.name", name, "must contain unique version names")
        seen.add(name)
        for detail in names.dns_1035_label_errors(name):
            yield FieldError.invalid(f"{path}.name", name, detail)
        yield from _version_errors(version, path)


def _version_errors(version: Obj, path: str) -> Iterator[FieldError]:
    schema = version.get("schema", {}).get("openAPIV3Schema")
    at = f"{path}.schema.openAPIV3Schema"
    if schema is None:
        yield FieldError.required(at, "schemas are required")
    else:
        if schema.get("type") != "object":
            kind = schema.get("type")
            yield (
                FieldError.invalid(f"{at}.type", kind, "must be object at the root")
                if kind
                else FieldError.required(f"{at}.type", "must not be empty at the root")
            )
        yield from _schema_errors(schema, at, is_structural=True)
    if "scale" in version.get("subresources", {}):
        yield FieldError.forbidden(
            f"{path}.subresources.scale", "custom resources have no scale in Moorage yet"
        )
    if version.get("selectableFields"):
        yield FieldError.forbidden(
            f"{path}.selectableFields", "fields of custom resources are not selectable yet"
        )
    for index, column in enumerate(version.get("additionalPrinterColumns", ())):
        yield from _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")


def _column_errors(column: Obj, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield FieldError.required(f"{path}.name")
    kind = column.get("type", "")
    if not kind:
        yield FieldError.required(
            f"{path}.type", f"must be one of {','.join(sorted(_COLUMN_TYPES))}"
        )
    elif kind not in _COLUMN_TYPES:
        yield FieldError.invalid(
            f"{path}.type", kind, f"must be one of {','.join(sorted(_COLUMN_TYPES))}"
        )
    format_ = column.get("format", "")
    if format_ and format_ not in _COLUMN_FORMATS:
        yield FieldError.invalid(
            f"{path}.format", format_, f"must be one of {','.join(sorted(_COLUMN_FORMATS))}"
        )
    json_path = column.get("jsonPath", "")
    if not json_path:
        yield FieldError.required(f"{path}.JSONPath")
        return
    try:
        compile_path(json_path)
    except PathError as error:
        yield FieldError.invalid(f"{path}.JSONPath", json_path, str(error))


def _schema_errors(schema: Obj, path: str, *, is_structural: bool) -> Iterator[FieldError]:
    """Yield the errors of one schema and of those below it.

    `is_structural` is false inside junctors, which may only validate values.
    """
    if is_structural:
        yield from _structure_errors(schema, path)
    elif schema.get("type"):
        yield FieldError.forbidden(f"{path}.type", "must be empty to be structural")
    if schema.get("x-kubernetes-validations"):
        yield FieldError.forbidden(
            f"{path}.x-kubernetes-validations", "CEL rules are not evaluated by Moorage yet"
        )
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            yield FieldError.invalid(
                f"{path}.pattern",
                pattern,
                f"must be a valid regular expression, but isn't: {error}",
            )
    for field in ("$ref", "definitions", "dependencies", "deprecated", "discriminator", "id",
                  "patternProperties", "readOnly", "writeOnly", "xml"):  # fmt: skip
        if schema.get(field):
            yield FieldError.forbidden(f"{path}.{field}", f"{field} is not supported")
    yield from _inner_errors(schema, path, is_structural=is_structural)


def _inner_errors(schema: Obj, path: str, *, is_structural: bool) -> Iterator[FieldError]:
    for name, inner in schema.get("properties", {}).items():
        yield from _schema_errors(inner, f"{path}.properties[{name}]", is_structural=is_structural)
    for field in ("items", "additionalProperties"):
        if isinstance(schema.get(field), dict):
            yield from _schema_errors(schema[field], f"{path}.{field}", is_structural=is_structural)
    for field in _JUNCTIONS:
        for index, inner in enumerate(schema.get(field, ())):
            if not _is_int_or_string_branch(schema, inner):
                yield from _schema_errors(inner, f"{path}.{field}[{index}]", is_structural=False)
    if isinstance(schema.get("not"), dict):
        yield from _schema_errors(schema["not"], f"{path}.not", is_structural=False)


def _is_int_or_string_branch(schema: Obj, branch: Obj) -> bool:
    """Return whether a branch is of the one form in which junctors may name types."""
    if not schema.get("x-kubernetes-int-or-string"):
        return False
    return branch in ({"type": "integer"}, {"type": "string"}) or "anyOf" in branch


def _structure_errors(schema: Obj, path: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    is_either = schema.get("x-kubernetes-int-or-string")
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if not kind and not is_either and not is_open:
        yield FieldError.required(
            f"{path}.type", "must not be empty for specified object fields"
            if ".properties[" in path else "must not be empty"
        )  # fmt: skip
    if kind and kind not in _TYPES_OF_VALUES:
        yield FieldError.not_supported(f"{path}.type", kind, _TYPES_OF_VALUES)
    if kind and is_either:
        yield FieldError.invalid(
            f"{path}.type", kind,
            "must be empty if x-kubernetes-int-or-string is true",
        )  # fmt: skip
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield FieldError.required(f"{path}.items", "must be specified")
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        yield FieldError.forbidden(
            f"{path}.additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        )
    if schema.get("uniqueItems"):
        yield FieldError.forbidden(
            f"{path}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    yield from _merge_errors(schema, path)


def _merge_errors(schema: Obj, path: str) -> Iterator[FieldError]:
    list_type, map_type = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-map-type")
    if list_type is not None and list_type not in _LIST_TYPES:
        yield FieldError.not_supported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)
    if map_type is not None and map_type not in _MAP_TYPES:
        yield FieldError.not_supported(f"{path}.x-kubernetes-map-type", map_type, _MAP_TYPES)
    keys = schema.get("x-kubernetes-list-map-keys", ())
    if list_type == "map":
        if not keys:
            yield FieldError.required(
                f"{path}.x-kubernetes-list-map-keys",
                "must not be empty if x-kubernetes-list-type is map",
            )
        properties = (schema.get("items") or {}).get("properties", {})
        for index, key in enumerate(keys):
            if key not in properties:
                yield FieldError.invalid(
                    f"{path}.x-kubernetes-list-map-keys[{index}]", key,
                    "entries must all be names of item properties",
                )  # fmt: skip
    elif keys:
        yield FieldError.required(
            f"{path}.x-kubernetes-list-type",
            "must be map if x-kubernetes-list-map-keys is non-empty",
        )


CUSTOM_RESOURCE_DEFINITION = Kind(
    name="CustomResourceDefinition",
    plural="customresourcedefinitions",
    served=(
        Served(
            group="apiextensions.k8s.io", version="v1", type=f"{_TYPES}.CustomResourceDefinition"
        ),
    ),
    is_namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    strategy=Strategy(
        default=default_definition,
        prepare_create=prepare_definition_create,
        prepare_update=keep_status,
        validate=validate_definition,
        validate_update=validate_definition_update,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
        needs_revision_on_update=True,
        mark_deleted=mark_definition_deleted,
        is_held=is_definition_held,
    ),
    printer=CREATED_AT,
    subresources=status_subresource(),
)
