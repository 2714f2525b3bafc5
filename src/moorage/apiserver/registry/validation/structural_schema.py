"""Structural schemas: the form that the schema of a custom resource must have.

Types, fields and lists are specified outside of `allOf`, `anyOf`, `oneOf` and `not`, which only
restrict values. Source: API docs "Specifying a structural schema"; apiextensions
`apiserver/schema` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.custom.formats import PatternError, compile_pattern
from moorage.apiserver.registry.custom.structure import Structure, has_unknown_fields

Schema = dict[str, Any]
"""One JSONSchemaProps object."""

_UNSUPPORTED = (
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
)
"""Fields that a structural schema cannot have, with the names in the errors about them."""

_JUNCTORS = ("anyOf", "allOf", "oneOf")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
"""The only `anyOf` that may name types."""

_MISSING_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_NESTED_MUST_BE = (
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
)
"""Fields that no schema below a junctor may have."""

_META_FIELDS = ("apiVersion", "kind", "metadata")


def children(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas directly below a schema."""
    items = schema.get("items")
    yield from items if isinstance(items, list) else [items] if isinstance(items, dict) else ()
    for junctor in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(junctor, ())
    if isinstance(schema.get("not"), dict):
        yield schema["not"]
    for field in ("properties", "patternProperties", "definitions", "dependencies"):
        inner = schema.get(field, {})
        yield from (inner[name] for name in sorted(inner) if isinstance(inner[name], dict))
    for field in ("additionalProperties", "additionalItems"):
        if isinstance(schema.get(field), dict):
            yield schema[field]


def structure_problem(schema: Schema) -> str:
    """Return why a schema has no structure at all; empty when it has one."""
    for field, name in _UNSUPPORTED:
        if schema.get(field) or (field == "additionalItems" and field in schema):
            return f"OpenAPIV3Schema '{name}' is not supported"
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    if isinstance(schema.get("items"), list) and schema["items"]:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return next(filter(None, map(structure_problem, children(schema))), "")


def structural_errors(schema: Schema, path: str) -> list[FieldError]:
    """Validate that a schema without a structure problem is structural.

    Errors are sorted by their text, as upstream's are.
    """
    errors = [*_node_errors(schema, path, "root"), *_missing(schema, schema, path, path)]
    return sorted(errors, key=str)


def _node_errors(schema: Schema, path: str, level: str) -> Iterator[FieldError]:
    """Yield the errors of a schema outside of junctors, and of those below it."""
    if schema.get("type") == "array" and "items" not in schema:
        yield FieldError.required(f"{path}.items", "must be specified")
    if isinstance(schema.get("items"), dict):
        yield from _node_errors(schema["items"], f"{path}.items", "item")
    for name, inner in schema.get("properties", {}).items():
        yield from _node_errors(inner, f"{path}.properties[{name}]", "field")
    if "additionalProperties" in schema:
        if level == "root":
            yield FieldError.forbidden(
                f"{path}.additionalProperties", "must not be used at the root"
            )
        if isinstance(schema["additionalProperties"], dict):
            yield from _node_errors(
                schema["additionalProperties"], f"{path}.additionalProperties", "field"
            )
    yield from _extension_errors(schema, path)
    yield from _junctor_errors(
        schema,
        path,
        permits_any_of=schema.get("anyOf") == _INT_OR_STRING,
        permits_first_all_of=_first_all_of(schema).get("anyOf") == _INT_OR_STRING,
    )
    yield from _type_errors(schema, path, level)
    yield from _metadata_errors(schema, path, level)


def _first_all_of(schema: Schema) -> Schema:
    branches = schema.get("allOf") or [{}]
    first: Schema = branches[0]
    return first


def _extension_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    if not schema.get("x-kubernetes-int-or-string"):
        return
    for field in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
        if schema.get(field):
            yield FieldError.invalid(
                f"{path}.{field}", True, "must be false if x-kubernetes-int-or-string is true"
            )


def _type_errors(schema: Schema, path: str, level: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    is_open = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    is_embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if is_embedded and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield _wrong_or_missing(f"{path}.type", kind, detail)
    elif not kind and not schema.get("x-kubernetes-int-or-string") and not is_open:
        yield FieldError.required(f"{path}.type", _MISSING_TYPE[level])
    if is_embedded and "additionalProperties" in schema:
        yield FieldError.forbidden(
            f"{path}.additionalProperties",
            "must not be used if x-kubernetes-embedded-resource is set",
        )
    if level == "root" and kind and kind != "object":
        yield FieldError.invalid(f"{path}.type", kind, "must be object at the root")
    if is_embedded and not is_open and not schema.get("properties"):
        yield FieldError.required(
            f"{path}.properties",
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        )


def _wrong_or_missing(path: str, value: str, detail: str) -> FieldError:
    return FieldError.invalid(path, value, detail) if value else FieldError.required(path, detail)


def _metadata_errors(schema: Schema, path: str, level: str) -> Iterator[FieldError]:
    """Yield the errors of the fields that every resource has, at the root or embedded."""
    is_resource = level == "root" or bool(schema.get("x-kubernetes-embedded-resource"))
    properties = schema.get("properties", {})
    for name, expected in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if is_resource and name in properties and properties[name].get("type", "") != expected:
            yield FieldError.invalid(
                f"{path}.properties[{name}].type",
                properties[name].get("type", ""),
                f"must be {expected}",
            )
    if level == "root" and "metadata" in properties and _says_too_much(properties["metadata"]):
        yield FieldError.forbidden(
            f"{path}.properties[metadata]",
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
        )


def _says_too_much(metadata: Schema) -> bool:
    fields = metadata.keys() - {"type", "default"}
    if metadata.get("properties", {}).keys() <= {"name", "generateName"}:
        fields -= {"properties"}
    return bool(fields)


def _junctor_errors(
    schema: Schema, path: str, *, permits_any_of: bool = False, permits_first_all_of: bool = False
) -> Iterator[FieldError]:
    """Yield the errors of the schemas inside the junctors of a schema."""
    for junctor in _JUNCTORS:
        if junctor == "anyOf" and permits_any_of:
            continue
        for index, inner in enumerate(schema.get(junctor, ())):
            yield from _nested_errors(
                inner,
                f"{path}.{junctor}[{index}]",
                permits_any_of=junctor == "allOf" and index == 0 and permits_first_all_of,
            )
    if "not" in schema:
        yield from _nested_errors(schema["not"], f"{path}.not")
    yield from _pattern_errors(schema.get("pattern", ""), f"{path}.pattern")


def _pattern_errors(pattern: str, path: str) -> Iterator[FieldError]:
    if not pattern:
        return
    try:
        compile_pattern(pattern)
    except PatternError as error:
        yield FieldError.invalid(
            path, pattern, f"must be a valid regular expression, but isn't: {error}"
        )


def _nested_errors(
    schema: Schema, path: str, *, permits_any_of: bool = False
) -> Iterator[FieldError]:
    """Yield the errors of a schema below a junctor, which may restrict values only."""
    yield from _junctor_errors(schema, path, permits_any_of=permits_any_of)
    if isinstance(schema.get("items"), dict):
        yield from _nested_errors(schema["items"], f"{path}.items")
    for name, inner in schema.get("properties", {}).items():
        yield from _nested_errors(inner, f"{path}.properties[{name}]")
    if schema.get("type"):
        yield FieldError.forbidden(f"{path}.type", "must be empty to be structural")
    if schema.get("additionalProperties", False) is not False:
        yield FieldError.forbidden(
            f"{path}.additionalProperties", "must be undefined to be structural"
        )
    for field, state in _NESTED_MUST_BE:
        if schema.get(field) or (state == "undefined" and schema.get(field) is not None):
            yield FieldError.forbidden(f"{path}.{field}", f"must be {state} to be structural")
    if "metadata" in schema.get("properties", {}):
        yield FieldError.forbidden(
            f"{path}.properties[metadata]", "must not be specified in a nested context"
        )


def _missing(
    values: Schema, structure: Schema | None, path: str, values_path: str
) -> Iterator[FieldError]:
    """Yield an error for each field or list that is restricted in a junctor and has no structure.

    `values` is the schema at `values_path` whose junctors restrict; `structure` the schema outside
    of junctors at `path`, None without one.
    """
    if structure is None:
        yield FieldError.required(path, f"because it is defined in {values_path}")
        return
    for junctor in _JUNCTORS:
        for index, inner in enumerate(values.get(junctor, ())):
            yield from _missing_below(inner, structure, path, f"{values_path}.{junctor}[{index}]")
    if "not" in values:
        yield from _missing_below(values["not"], structure, path, f"{values_path}.not")


def _missing_below(
    values: Schema, structure: Schema, path: str, values_path: str
) -> Iterator[FieldError]:
    yield from _missing(values, structure, path, values_path)
    if isinstance(values.get("items"), dict):
        yield from _compared(
            values["items"], structure.get("items"), f"{path}.items", f"{values_path}.items"
        )
    for name, inner in values.get("properties", {}).items():
        yield from _compared(
            inner,
            structure.get("properties", {}).get(name),
            f"{path}.properties[{name}]",
            f"{values_path}.properties[{name}]",
        )


def _compared(
    values: Schema, structure: Schema | None, path: str, values_path: str
) -> Iterator[FieldError]:
    if structure is None:
        yield FieldError.required(path, f"because it is defined in {values_path}")
    else:
        yield from _missing_below(values, structure, path, values_path)


def default_errors(
    structure: Structure, path: str, *, is_root: bool = True
) -> Iterator[FieldError]:
    """Yield the errors of defaults with fields that the structure at `path` does not specify.

    Defaults inside the metadata of resources are not looked at.
    """
    is_resource = is_root or structure.is_embedded
    if structure.has_default and has_unknown_fields(
        structure.default, structure, is_resource=is_resource
    ):
        yield FieldError.invalid(
            f"{path}.default", structure.default, "must not have unknown fields"
        )
    if structure.items is not None:
        yield from default_errors(structure.items, f"{path}.items", is_root=False)
    for name, inner in structure.properties.items():
        if not (is_resource and name in _META_FIELDS):
            yield from default_errors(inner, f"{path}.properties[{name}]", is_root=False)
