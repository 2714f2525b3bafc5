"""Schema types: the fields of each API type, their merge rules and protobuf numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import resources
from typing import Literal

import msgspec

BUNDLE = "generated/types.msgpack"


def read_generated(package: str, path: str) -> bytes:
    """Return a generated file of a package.

    Raises FileNotFoundError, with the command to run, when the package was not built.
    """
    file = resources.files(package).joinpath(path)
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{file} is missing: build the package first (`make venv` does)"
        ) from error


Kind = Literal[
    "string", "int32", "int64", "bool", "double", "bytes", "time", "microTime", "quantity",
    "intOrString", "object", "any", "strings",
]  # fmt: skip
"""Kind of one value. `any` is free JSON (RawExtension, FieldsV1); `strings` a list inside a map.

Where `any` has a type, objects in it are of that type: JSONSchemaPropsOrArray, OrBool,
OrStringArray.
"""

Container = Literal["", "list", "map"]


class Field(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of a type.

    `is_pointer`: absent differs from the zero value. `is_always`: written even when zero.
    `list_type`, `list_keys` and `map_type` control server-side apply (`key_default` is the value of
    an absent list key), `merge_key` and `strategies` control strategic merge patches. `number` is
    the protobuf field; None inside an inlined message.
    """

    name: str
    kind: Kind
    container: Container = ""
    type: str = ""
    number: int | None = None
    is_pointer: bool = False
    is_always: bool = False
    is_required: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str = ""
    merge_key: str = ""
    strategies: tuple[str, ...] = ()
    key_default: str = ""


class Inlined(msgspec.Struct, frozen=True):
    """A protobuf message whose fields are inlined into the parent in JSON."""

    number: int
    type: str


class Type(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One object type. `is_atomic`: server-side apply owns it as a whole.

    `is_open`: fields that are not listed exist too, each owned as a whole.
    """

    name: str
    fields: tuple[Field, ...]
    inlined: tuple[Inlined, ...] = ()
    is_atomic: bool = False
    is_open: bool = False

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    @cached_property
    def by_number(self) -> dict[int, Field]:
        return {field.number: field for field in self.fields if field.number is not None}

    @cached_property
    def go_name(self) -> str:
        """Return the unqualified name, as in Go's decoding errors."""
        return self.name.rsplit(".", 1)[-1]


class Schema:
    """All types by their full names (`io.k8s.api.core.v1.Pod`).

    A type is decoded when it is first read: most of the API's types are never used by a cluster.
    """

    def __init__(self, packed: Mapping[str, msgspec.Raw]) -> None:
        self._packed = packed
        self._types: dict[str, Type] = {}
        self._decoder = msgspec.msgpack.Decoder(Type)

    def __getitem__(self, name: str) -> Type:
        type_ = self._types.get(name)
        if type_ is None:
            type_ = self._types.setdefault(name, self._decoder.decode(self._packed[name]))
        return type_

    def add(self, types: Iterable[Type]) -> None:
        """Add types that are known only at run time, or replace them."""
        self._types |= {type_.name: type_ for type_ in types}

    def remove(self, names: Iterable[str]) -> None:
        """Remove types that `add` added."""
        for name in names:
            self._types.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._types or name in self._packed

    def names(self) -> Iterable[str]:
        return self._packed.keys()

    def __len__(self) -> int:
        return len(self._packed)


def load_schema() -> Schema:
    """Load the schema compiled into this installation.

    Raises FileNotFoundError, with the command to run, when the package was not built.
    """
    packed = read_generated(__package__, BUNDLE)
    return Schema(msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw]))
