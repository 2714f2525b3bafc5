"""Checked expressions: the tree that the library makes of an expression, with types and overloads.

The library gives the tree only as a serialized message, and takes one. The descriptor here has the
fields of `cel.expr.CheckedExpr` that costs depend on; the others are kept as they are. Source:
cel-spec `proto/cel/expr`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

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
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def make_expr(number: int) -> Expr:
    """Return an empty expression with an id."""
    return type(_Checked().expr)(id=number)


def kind_of(expr: Expr) -> str:
    """Return the kind of an expression: `call_expr`, `const_expr`, …."""
    return expr.WhichOneof("kind") or ""
