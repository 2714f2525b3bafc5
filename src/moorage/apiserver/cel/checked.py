"""Checked expressions: the tree that the library makes of an expression, with types and overloads.

The library gives the tree only as a serialized message, and takes one. The descriptor here has the
fields of `cel.expr.CheckedExpr` that costs depend on; the others are kept as they are. Source:
cel-spec `proto/cel/expr`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

from moorage.apiserver.cel.values import Schema, as_resource, names_of

# Declared types: what a schema bounds of its values, as the estimate of costs needs it.
#
# Where a schema has no bound, the size of the largest request is one. Source: apiserver
# `cel/common/schemas.go`, `cel/limits.go` of Kubernetes 1.36.

_REQUEST_BYTES = 3 * 1024 * 1024
_TEXT_BYTES = _REQUEST_BYTES - 2
"""The longest text, without its quotes."""

_LEAST_TEXT, _LEAST_OBJECT = 2, 2
_LEAST = {"boolean": 4, "number": 1, "integer": 1}
_TEXTS = {"date": (12, 12), "date-time": (21, 32), "duration": (3, 32)}
"""Least and largest size of texts with a format."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The type of a value: at most so many elements, at least so many bytes of JSON."""

    most_elements: int
    least_bytes: int
    fields: Mapping[str, Declared] = field(default_factory=dict)
    keys: Declared | None = None
    items: Declared | None = None

    def at(self, path: tuple[str, ...]) -> Declared | None:
        """Return the type at a path of fields, `@keys`, `@items` and `@values`."""
        found: Declared | None = self
        for name in path:
            if found is None:
                return None
            if name in ("@items", "@values"):
                found = found.items
            elif name == "@keys":
                found = found.keys
            else:
                found = found.fields.get(name)
        return found


_KEY = Declared(0, _LEAST_TEXT)


def declare(schema: Schema, *, is_resource: bool = False) -> Declared | None:
    """Return the type of a schema's values, None where expressions see none."""
    if schema.get("x-kubernetes-int-or-string"):
        return Declared(_most_chars(schema, _TEXT_BYTES), 1)
    if is_resource:
        schema = as_resource(schema)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            return _object(schema)
        case "string":
            return _text(schema)
        case "boolean" | "number" | "integer" as name:
            return Declared(0, _LEAST[name])
    return None


def _below(schema: Schema) -> Declared | None:
    return declare(schema, is_resource=bool(schema.get("x-kubernetes-embedded-resource")))


def _list(schema: Schema) -> Declared | None:
    items = _below(schema.get("items") or {})
    if items is None:
        return None
    most = schema.get("maxItems")
    if most is None:
        most = (_REQUEST_BYTES - 2) // (items.least_bytes + 1)
    return Declared(max(most, 0), 2, items=items)


def _object(schema: Schema) -> Declared | None:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        inner = _below(values)
        if inner is None:
            return None
        most = schema.get("maxProperties")
        if most is None:
            most = (_REQUEST_BYTES - 2) // (inner.least_bytes + 6)
        return Declared(max(most, 0), 2, keys=_KEY, items=inner)
    fields: dict[str, Declared] = {}
    least, required = _LEAST_OBJECT, schema.get("required") or ()
    for name, own in (schema.get("properties") or {}).items():
        inner = _below(own)
        if inner is None:
            continue
        fields.update(dict.fromkeys(names_of(name), inner))
        if name in required and "default" not in own:
            least += len(name) + inner.least_bytes + 4
    return Declared(0, least, fields=fields)


def _text(schema: Schema) -> Declared:
    kind = schema.get("format", "")
    if kind in _TEXTS:
        least, most = _TEXTS[kind]
        return Declared(most, least)
    if kind == "byte":
        return Declared(max(schema.get("maxLength", _TEXT_BYTES), 0), _LEAST_TEXT)
    if "maxLength" not in schema and schema.get("enum"):
        texts = [len(value.encode()) for value in schema["enum"] if isinstance(value, str)]
        return Declared(max(texts, default=0), _LEAST_TEXT)
    return Declared(_most_chars(schema, _TEXT_BYTES), _LEAST_TEXT)


def _most_chars(schema: Schema, otherwise: int) -> int:
    """Return the most bytes of a text: `maxLength` counts characters, which have up to four."""
    return max(schema["maxLength"], 0) * 4 if "maxLength" in schema else otherwise


Expr: TypeAlias = Any
"""A message of the type `cel.expr.Expr`."""

_PACKAGE = "cel.expr"
_KINDS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "text": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_MESSAGES: dict[str, str] = {
    "CheckedExpr": "reference_map=2:*References type_map=3:*Types expr=4:Expr",
    "References": "key=1:int value=2:Reference",
    "Types": "key=1:int value=2:Type",
    "Reference": "name=1:text overload_id=3:*text",
    "Type": "null=2:int primitive=3:int wrapper=4:int well_known=5:int list_type=6:ListType"
    " map_type=7:MapType message_type=9:text type_param=10:text type=11:Type"
    " abstract_type=14:AbstractType",
    "ListType": "elem_type=1:Type",
    "MapType": "key_type=1:Type value_type=2:Type",
    "AbstractType": "name=1:text parameter_types=2:*Type",
    "Expr": "id=2:int const_expr=3:Constant ident_expr=4:Ident select_expr=5:Select"
    " call_expr=6:Call list_expr=7:CreateList struct_expr=8:CreateStruct"
    " comprehension_expr=9:Comprehension",
    "Constant": "bool_value=2:bool int64_value=3:int string_value=6:text bytes_value=7:bytes",
    "Ident": "name=1:text",
    "Select": "operand=1:Expr field=2:text test_only=3:bool",
    "Call": "target=1:Expr function=2:text args=3:*Expr",
    "CreateList": "elements=1:*Expr",
    "CreateStruct": "message_name=1:text entries=2:*Entry",
    "Entry": "map_key=3:Expr value=4:Expr",
    "Comprehension": "iter_var=1:text iter_range=2:Expr accu_var=3:text accu_init=4:Expr"
    " loop_condition=5:Expr loop_step=6:Expr result=7:Expr iter_var2=8:text",
}
"""Messages with `name=number:type` for each field; `*` stands before the type of a list."""

_ONE_OF = {"Expr": "id", "Type": "", "Constant": ""}
"""Messages whose fields, but for the named one, exclude each other: they are set when empty too."""


def _make_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="moorage/checked.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _ONE_OF:
            message.oneof_decl.add(name="kind")
        for text in fields.split():
            field, _, rest = text.partition("=")
            number, _, type_ = rest.partition(":")
            declared = message.field.add(name=field, number=int(number))
            is_list = type_.startswith("*")
            type_ = type_.lstrip("*")
            declared.label = declared.LABEL_REPEATED if is_list else declared.LABEL_OPTIONAL
            if type_ in _KINDS:
                declared.type = _KINDS[type_]
            else:
                declared.type, declared.type_name = declared.TYPE_MESSAGE, f".{_PACKAGE}.{type_}"
            if name in _ONE_OF and field != _ONE_OF[name]:
                declared.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.CheckedExpr"))


_Checked = _make_class()


class CheckedExpression:
    """The tree of an expression."""

    def __init__(self, serialized: bytes) -> None:
        """Decode what a program's `serialized` returns."""
        self._any = any_pb2.Any.FromString(serialized)
        self._message = message = _Checked.FromString(self._any.value)
        self.root: Expr = message.expr
        self._types = {entry.key: entry.value for entry in message.type_map}
        self._overloads = {
            entry.key: tuple(entry.value.overload_id) for entry in message.reference_map
        }
        self._names = {entry.key for entry in message.reference_map if entry.value.name}

    def overloads(self, expr: Expr) -> Sequence[str]:
        """Return the overloads that a call may mean."""
        return self._overloads.get(expr.id, ())

    def is_name(self, expr: Expr) -> bool:
        """Return whether an expression, a field by its form, is a variable whose name has dots."""
        return expr.id in self._names

    def fields_of(self, variable: str) -> set[str]:
        """Return the fields of a variable that the expression mentions."""
        return {
            select.field
            for select in _messages(self.root)
            if select.DESCRIPTOR.name == "Select" and select.operand.ident_expr.name == variable
        }

    def serialized(self) -> bytes:
        """Return the message that the library loads, with what was changed below `root`."""
        changed = any_pb2.Any(type_url=self._any.type_url, value=self._message.SerializeToString())
        return bytes(changed.SerializeToString())

    def share_type(self, made: Expr, expr: Expr) -> None:
        """Give an expression that was made for another one its type."""
        if expr.id in self._types:
            self._types[made.id] = self._types[expr.id]

    def type_of(self, expr: Expr) -> Any:
        """Return the type of an expression, None for a dynamic one."""
        type_ = self._types.get(expr.id)
        return type_ if type_ is not None and type_.WhichOneof("kind") else None


def _messages(message: Any) -> Iterator[Any]:
    """Yield a message and all that it contains."""
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for inner in value if descriptor.is_repeated else (value,):
                yield from _messages(inner)


def make_expr(number: int) -> Expr:
    """Return an empty expression with an id."""
    return type(_Checked().expr)(id=number)


def kind_of(expr: Expr) -> str:
    """Return the kind of an expression: `call_expr`, `const_expr`, …."""
    return expr.WhichOneof("kind") or ""
