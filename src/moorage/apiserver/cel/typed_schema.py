"""Typed schemas: message types for the objects of a schema, so that rules are checked against them.

Rules are evaluated on maps. To be checked, a rule is compiled once more with the objects as
messages: fields that the schema does not have are then unknown, and the types in the tree are those
that costs are estimated with. Source: apiserver `cel/common/schemas.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pb2

from moorage.apiserver.cel.library.opaque import make_pool
from moorage.apiserver.cel.values import CelType, Schema, Type, as_resource, is_known, names_of

_PACKAGE = "schema"
_DEPENDENCIES = ("duration", "struct", "timestamp")
_RESERVED_NUMBERS = range(19000, 20000)
_MOST_FIELDS = 65_535
_MOST_REPEATED = 8_000
"""How many fields a message may have, and how many of them lists or maps: its values have at most
64 KiB, of which each of these takes 8 bytes. All others share the room of one."""

_Field = descriptor_pb2.FieldDescriptorProto
_ONE_OF = "__one__"
_DYN = ".google.protobuf.Value"
_LIST = ".google.protobuf.ListValue"
_MAP = ".google.protobuf.Struct"
_SCALARS = {"boolean": _Field.TYPE_BOOL, "integer": _Field.TYPE_INT64, "number": _Field.TYPE_DOUBLE}
_SIMPLE = {"boolean": Type.BOOL, "integer": Type.INT, "number": Type.DOUBLE}
_TEXTS: dict[str, CelType] = {
    "byte": Type.BYTES,
    "date": Type.TIMESTAMP,
    "date-time": Type.TIMESTAMP,
    "duration": Type.DURATION,
}
_TEXT_MESSAGES = {
    "date": ".google.protobuf.Timestamp",
    "date-time": ".google.protobuf.Timestamp",
    "duration": ".google.protobuf.Duration",
}

_UNDEFINED = re.compile(r" not found in struct '[^']*'")
_FOLLOWING = re.compile(r"\nERROR: [^\n]*'\*error\*'[^\n]*\n \| [^\n]*\n \| [^\n]*")
"""An error that another one brings with it: cel-go leaves these out."""

_TYPE_NAME = re.compile(rf"\b{_PACKAGE}\.M\d+\b")


class TypedSchema:
    """The message types of one schema, and of the schemas in it."""

    def __init__(self, schema: Schema, *, is_resource: bool = True) -> None:
        """Declare the types of a schema; a resource has the fields of every resource too."""
        self._file = descriptor_pb2.FileDescriptorProto(
            name="moorage/schema.proto",
            package=_PACKAGE,
            syntax="proto3",
            dependency=[f"google/protobuf/{name}.proto" for name in _DEPENDENCIES],
        )
        self._names: dict[int, str] = {}
        self._kept: list[Schema] = []
        self._declare(schema, is_resource=is_resource)
        self.pool = make_pool(self._file)

    def type_of(self, schema: Schema) -> CelType:
        """Return the type of the values of a schema that is part of the declared one."""
        if _is_dynamic(schema):
            return Type.DYN
        match schema.get("type"):
            case "array":
                return Type.List(self.type_of(schema.get("items") or {}))
            case "object":
                values = _map_values(schema)
                if values is not None:
                    return Type.Map(Type.STRING, self.type_of(values))
                name = self._names.get(id(schema))
                # Metadata has the fields of every resource, whatever its schema says.
                return cel.Type(f"{_PACKAGE}.{name}") if name else Type.Map(Type.STRING, Type.DYN)
            case "string":
                return _TEXTS.get(schema.get("format", ""), Type.STRING)
            case kind:
                return _SIMPLE.get(kind or "", Type.DYN)

    def schema_of(self, message: str) -> Schema | None:
        """Return the schema of a message type, None for one of another package."""
        package, _, name = message.rpartition(".")
        return self._kept[int(name.removeprefix("M"))] if package == _PACKAGE else None

    def _declare(self, schema: Schema, *, is_resource: bool = False) -> None:
        """Add the message types of a schema and of those below, once if it occurs twice."""
        if id(schema) in self._names:
            return
        for part in ("items", "additionalProperties"):
            if isinstance(inner := schema.get(part), Mapping):
                self._declare_below(inner)
        if schema.get("type") != "object" or _map_values(schema) is not None:
            return
        seen = as_resource(schema) if is_resource else schema
        fields = {
            name_of_field: inner
            for field, inner in (seen.get("properties") or {}).items()
            if is_known(inner)
            for name_of_field in names_of(field)
        }
        if len(fields) > _MOST_FIELDS or sum(map(_is_repeated, fields.values())) > _MOST_REPEATED:
            return  # Seen as a map of dynamic values.
        self._names[id(schema)] = name = f"M{len(self._kept)}"
        self._kept.append(schema)
        for inner in (seen.get("properties") or {}).values():
            self._declare_below(inner)
        message = self._file.message_type.add(name=name)
        # Names in JSON are not used here, so those of `fooBar` and `foo_bar` may be the same.
        message.options.deprecated_legacy_json_field_conflicts = True
        taken = set(fields)
        # Those of one `oneof` have to follow each other.
        for field, inner in sorted(fields.items(), key=lambda one: _is_repeated(one[1])):
            self._add(message, field, inner, taken)

    def _declare_below(self, schema: Schema) -> None:
        self._declare(schema, is_resource=bool(schema.get("x-kubernetes-embedded-resource")))

    def _add(self, message: Any, name: str, schema: Schema, taken: set[str]) -> None:
        """Add a field; `taken` are the names of fields and types in the message."""
        number = len(message.field) + 1
        if number >= _RESERVED_NUMBERS.start:
            number += len(_RESERVED_NUMBERS)
        field = message.field.add(name=name, number=number)
        field.label = _Field.LABEL_OPTIONAL
        is_repeated = _is_repeated(schema)
        values = _map_values(schema) if is_repeated else None
        if not is_repeated:
            if not message.oneof_decl:
                message.oneof_decl.add(name=_ONE_OF)
            field.oneof_index = 0
        entry_name = _entry_name(name)
        if values is not None and entry_name not in taken and entry_name.isidentifier():
            taken.add(entry_name)
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            self._set_type(entry.field.add(name="key", number=1, label=1), {"type": "string"})
            self._set_type(entry.field.add(name="value", number=2, label=1), values)
            field.label = _Field.LABEL_REPEATED
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
        elif schema.get("type") == "array" and is_repeated:
            field.label = _Field.LABEL_REPEATED
            self._set_type(field, schema.get("items") or {})
        else:
            self._set_type(field, schema)

    def _set_type(self, field: Any, schema: Schema) -> None:
        """Set the type of one value: protobuf has no lists of lists, so these are dynamic."""
        kind, text = schema.get("type") or "", schema.get("format", "")
        if _is_dynamic(schema):
            type_name = _DYN
        elif kind in _SCALARS:
            field.type = _SCALARS[kind]
            return
        elif kind == "string" and text not in _TEXT_MESSAGES:
            field.type = _Field.TYPE_BYTES if text == "byte" else _Field.TYPE_STRING
            return
        elif kind == "string":
            type_name = _TEXT_MESSAGES[text]
        elif kind == "array":
            type_name = _LIST
        elif kind == "object" and id(schema) not in self._names:
            type_name = _MAP
        elif kind == "object":
            type_name = f".{_PACKAGE}.{self._names[id(schema)]}"
        else:
            type_name = _DYN
        field.type, field.type_name = _Field.TYPE_MESSAGE, type_name


def in_words_of_kubernetes(error: str) -> str:
    """Return a compile error without the names of message types, and without its consequences."""
    return _TYPE_NAME.sub("object", _UNDEFINED.sub("", _FOLLOWING.sub("", error)))


def _entry_name(field: str) -> str:
    """Return the name that protobuf wants for the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _is_dynamic(schema: Schema) -> bool:
    return bool(schema.get("nullable") or schema.get("x-kubernetes-int-or-string"))


def _is_repeated(schema: Schema) -> bool:
    """Return whether the field of a schema holds many values."""
    if _is_dynamic(schema):
        return False
    return schema.get("type") == "array" or _map_values(schema) is not None


def _map_values(schema: Schema) -> Schema | None:
    values = schema.get("additionalProperties")
    if schema.get("properties") or not isinstance(values, Mapping):
        return None
    return values
