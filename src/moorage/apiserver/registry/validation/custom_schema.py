"""Custom resource schema validation: what the schema of a definition may say.

A schema passes two sets of rules: those of its structure (`structural_schema`) and, here, those of
each field. Source: apiextensions validation of Kubernetes 1.36.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from moorage.api.errors import FieldError
from moorage.apiserver.registry.custom.structure import compile_structure
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.expressions import expression_errors
from moorage.apiserver.registry.validation.field_paths import FieldPathError, resolve_field_path
from moorage.apiserver.registry.validation.repeated import repeated
from moorage.apiserver.registry.validation.structural_schema import (
    Schema,
    children,
    default_errors,
    structural_errors,
    structure_problem,
)

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_META_FIELDS = ("metadata", "kind", "apiVersion")
_LIST_TYPES = ("atomic", "set", "map")
_MAP_TYPES = ("atomic", "granular")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_LINE_BREAK = re.compile(r"[\n\r]")
_PERMITTED_AT_ROOT = {
    "description": "Description", "type": "Type", "format": "Format", "title": "Title",
    "maximum": "Maximum", "exclusiveMaximum": "ExclusiveMaximum", "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum", "maxLength": "MaxLength", "minLength": "MinLength",
    "pattern": "Pattern", "maxItems": "MaxItems", "minItems": "MinItems",
    "uniqueItems": "UniqueItems", "multipleOf": "MultipleOf", "required": "Required",
    "items": "Items", "properties": "Properties", "externalDocs": "ExternalDocs",
    "example": "Example", "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}  # fmt: skip
"""Fields, with the names in the error, of a root whose `status` is validated by itself."""

_STRING_FORMATS = frozenset({
    "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3",
    "uuid4", "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor",
    "byte", "password", "date", "duration", "datetime", "k8sshortname", "k8slongname",
})  # fmt: skip
"""Formats of strings, without their dashes."""

_NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


class _Place(msgspec.Struct, frozen=True):
    """Where in a definition a schema stands.

    `no_default`: why it may not have a default, empty if it may. `is_in_meta`: whether it is about
    the metadata, kind or apiVersion of a resource.
    """

    is_root: bool = False
    is_in_meta: bool = False
    no_default: str = ""


def schema_errors(schema: Schema, path: str, *, has_status: bool) -> list[FieldError]:
    """Validate the schema of a version, which stands at `path`.

    `has_status`: whether the status subresource is enabled, which validates `status` alone.
    """
    errors = _root_errors(schema, path) if has_status else []
    if schema.get("nullable"):
        errors.append(
            FieldError.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
        )
    problem = structure_problem(schema)
    if not problem:
        errors += structural_errors(schema, path) or default_errors(compile_structure(schema), path)
    errors += _node_errors(schema, path, _Place(is_root=True))
    if problem and not errors:
        errors.append(FieldError.invalid(path, "", problem))
    return errors


def _root_errors(schema: Schema, path: str) -> list[FieldError]:
    kind = schema.get("type", "")
    if kind not in ("", "object"):
        return [
            FieldError.invalid(
                f"{path}.type",
                kind,
                'only "object" is allowed as the type at the root of the schema if the status '
                "subresource is enabled",
            )
        ]
    if schema.keys() <= _PERMITTED_AT_ROOT.keys():
        return []
    shown = " ".join(_PERMITTED_AT_ROOT.values())
    return [
        FieldError.invalid(
            path,
            schema,
            f"only [{shown}] fields are allowed at the root of the schema if the status "
            "subresource is enabled",
        )
    ]


def _node_errors(schema: Schema, path: str, place: _Place) -> Iterator[FieldError]:
    """Yield the errors of a schema and of those below it."""
    yield from _unsupported_errors(schema, path, place)
    if schema.get("uniqueItems"):
        yield FieldError.forbidden(
            f"{path}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    yield from _inner_errors(schema, path, place)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield FieldError.invalid(
            f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"
        )
    yield from _map_errors(schema, path)
    yield from _list_errors(schema, path)
    for index, rule in enumerate(schema.get("x-kubernetes-validations", ())):
        yield from _rule_errors(rule, schema, f"{path}.x-kubernetes-validations[{index}]")


def _unsupported_errors(schema: Schema, path: str, place: _Place) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield FieldError.not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and place.no_default:
        yield FieldError.forbidden(f"{path}.default", f"must not be set {place.no_default}")
    if schema.get("id"):
        yield FieldError.forbidden(f"{path}.id", "id is not supported")
    for field in ("additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if schema.get(field) or (field in ("additionalItems", "$ref") and field in schema):
            yield FieldError.forbidden(f"{path}.{field}", f"{field} is not supported")
    if kind == "null":
        yield FieldError.forbidden(
            f"{path}.type", "type cannot be set to null, use nullable as an alternative"
        )
    if isinstance(schema.get("items"), list) and schema["items"]:
        yield FieldError.forbidden(
            f"{path}.items", "items must be a schema object and not an array"
        )
    if place.is_in_meta and schema.get("x-kubernetes-embedded-resource"):
        yield FieldError.forbidden(
            f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta"
        )


def _inner_errors(schema: Schema, path: str, place: _Place) -> Iterator[FieldError]:
    below = replace(place, is_root=False)
    values = schema.get("additionalProperties")
    if values is not None:
        if schema.get("properties") and values is not True:
            yield FieldError.forbidden(
                f"{path}.additionalProperties",
                "additionalProperties and properties are mutual exclusive",
            )
        if isinstance(values, dict):
            reason = "inside additionalProperties applying to object metadata"
            inside = replace(below, no_default=reason) if place.is_in_meta else below
            yield from _node_errors(values, f"{path}.additionalProperties", inside)
    for name, inner in sorted(schema.get("properties", {}).items()):
        at = f"{path}.properties[{name}]"
        yield from _node_errors(inner, at, _property_place(schema, name, place))
    if isinstance(schema.get("not"), dict):
        yield from _node_errors(schema["not"], f"{path}.not", below)
    for junctor in ("allOf", "oneOf", "anyOf"):
        for index, inner in enumerate(schema.get(junctor, ())):
            yield from _node_errors(inner, f"{path}.{junctor}[{index}]", below)
    for name, inner in sorted(schema.get("definitions", {}).items()):
        yield from _node_errors(inner, f"{path}.definitions[{name}]", below)
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _node_errors(items, f"{path}.items", below)
    for index, inner in enumerate(items if isinstance(items, list) else ()):
        yield from _node_errors(inner, f"{path}.items[{index}]", below)
    for name, inner in sorted(schema.get("dependencies", {}).items()):
        if isinstance(inner, dict):
            yield from _node_errors(inner, f"{path}.dependencies[{name}]", below)


def _property_place(schema: Schema, name: str, place: _Place) -> _Place:
    is_resource = place.is_root or bool(schema.get("x-kubernetes-embedded-resource"))
    if name not in _META_FIELDS or not is_resource:
        return replace(place, is_root=False)
    no_default = f"in top-level {name}" if place.is_root else place.no_default
    return _Place(is_in_meta=True, no_default=no_default)


def _map_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is None:
        return
    yield from _type_errors(
        schema, path, "object", "must be object if x-kubernetes-map-type is specified"
    )
    if map_type not in _MAP_TYPES:
        yield FieldError.not_supported(f"{path}.x-kubernetes-map-type", map_type, _MAP_TYPES)


def _type_errors(schema: Schema, path: str, kind: str, detail: str) -> Iterator[FieldError]:
    actual = schema.get("type", "")
    if not actual:
        yield FieldError.required(f"{path}.type", detail)
    elif actual != kind:
        yield FieldError.invalid(f"{path}.type", actual, detail)


def _list_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    list_type = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if list_type is not None and schema.get("type") != "array":
        yield from _type_errors(
            schema, path, "array", "must be array if x-kubernetes-list-type is specified"
        )
    elif list_type == "set":
        yield from _set_errors(schema, path)
    at = f"{path}.x-kubernetes-list-type"
    if list_type is not None and list_type not in _LIST_TYPES:
        yield FieldError.not_supported(at, list_type, _LIST_TYPES)
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield (
            FieldError.required(at, detail)
            if list_type is None
            else FieldError.invalid(at, list_type, detail)
        )
    if list_type == "map":
        yield from _list_map_errors(schema, path, keys)
    if list_type in ("set", "map") and isinstance(schema.get("items"), dict):
        yield from _identity_errors(schema["items"], path, list_type, keys)


def _set_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield the errors of the items of a set, which must be atomic."""
    items = schema.get("items")
    if not isinstance(items, dict):
        return
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield FieldError.invalid(f"{path}.items.x-kubernetes-list-type", list_type, detail)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        # Upstream shows the items' list type.
        yield FieldError.invalid(f"{path}.items.x-kubernetes-map-type", list_type, detail)


def _list_map_errors(schema: Schema, path: str, keys: list[str]) -> Iterator[FieldError]:
    """Yield the errors of a list that is a map: its items are objects with scalar keys."""
    at = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield FieldError.required(at, "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items")
    if items is None:
        yield FieldError.required(
            f"{path}.items", "must have a schema if x-kubernetes-list-type is map"
        )
        return
    if not isinstance(items, dict):
        yield FieldError.invalid(
            f"{path}.items",
            items,
            "must only have a single schema if x-kubernetes-list-type is map",
        )
        return
    if items.get("type") != "object":
        yield FieldError.invalid(
            f"{path}.items.type",
            items.get("type", ""),
            "must be object if parent array's x-kubernetes-list-type is map",
        )
        return
    properties = items.get("properties", {})
    repeats = repeated(keys)
    for index, key in enumerate(keys):
        if key not in properties:
            yield FieldError.invalid(at, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            yield FieldError.invalid(
                f"{path}.items.properties[{key}].type",
                "object",
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            )
        if index in repeats:
            yield FieldError.invalid(at, keys, "must not contain duplicate entries")


def _identity_errors(
    items: Schema, path: str, list_type: str, keys: list[str]
) -> Iterator[FieldError]:
    """Yield the errors of items by whose values the list's elements are identified."""
    if items.get("nullable"):
        yield FieldError.forbidden(
            f"{path}.items.nullable",
            f"cannot be nullable when x-kubernetes-list-type is {list_type}",
        )
    properties = items.get("properties", {})
    for key in keys if list_type == "map" else ():
        if key not in properties:
            continue
        at = f"{path}.items.properties[{key}]"
        if key not in items.get("required", ()) and properties[key].get("default") is None:
            yield FieldError.required(
                f"{at}.default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be "
                "a required property",
            )
        if properties[key].get("nullable"):
            yield FieldError.forbidden(
                f"{at}.nullable",
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            )


def _rule_errors(rule: Obj, schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield the errors of one CEL rule."""
    yield from _rule_text_errors(rule, path)
    if rule.get("messageExpression"):
        yield from expression_errors(
            rule["messageExpression"],
            f"{path}.messageExpression",
            detail="messageExpression must be non-empty if specified",
        )
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield FieldError.not_supported(f"{path}.reason", reason, _REASONS)
    field_path = rule.get("fieldPath", "")
    if not field_path:
        return
    if not field_path.strip():
        yield FieldError.invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified")
    if _LINE_BREAK.search(field_path):
        yield FieldError.invalid(f"{path}.fieldPath", field_path, "must not contain line breaks")
    if not _names_a_field(field_path, schema):
        yield FieldError.invalid(f"{path}.fieldPath", field_path, "must be a valid path")


def _rule_text_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    expression, message = rule.get("rule", ""), rule.get("message", "")
    if errors := expression_errors(expression, f"{path}.rule", detail="rule is not specified"):
        yield from errors
    elif message and not message.strip():
        yield FieldError.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield FieldError.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _LINE_BREAK.search(expression.strip()) and not message:
        yield FieldError.required(
            f"{path}.message", "message must be specified if rule contains line breaks"
        )


def _names_a_field(field_path: str, schema: Schema) -> bool:
    if structure_problem(schema):
        return True
    try:
        resolve_field_path(field_path, schema)
    except FieldPathError:
        return False
    return True


def schema_warnings(schema: Schema) -> tuple[list[str], list[str]]:
    """Return the warnings about a schema: about formats, and about sets of non-scalar items."""
    formats, sets = [], []
    format_, kind = schema.get("format", ""), schema.get("type", "")
    if format_ and not _is_known_format(format_, kind):
        formats.append(f"unrecognized format {json.dumps(format_, ensure_ascii=False)}")
    item_type = _item_type(schema) if schema.get("x-kubernetes-list-type") == "set" else ""
    if item_type in ("object", "array"):
        sets.append(
            f'x-kubernetes-list-type: set for items of type "{item_type}" is not supported by '
            "server-side apply or CEL validation rules"
        )
    for inner in children(schema):
        inner_formats, inner_sets = schema_warnings(inner)
        formats += inner_formats
        sets += inner_sets
    return formats, sets


def _item_type(schema: Schema) -> str:
    items = schema.get("items")
    return items.get("type", "") if isinstance(items, dict) else ""


def _is_known_format(format_: str, kind: str) -> bool:
    if kind in ("", "string"):
        return format_.replace("-", "") in _STRING_FORMATS
    return format_ in _NUMBER_FORMATS.get(kind, ())
