"""Schema build: writes the files a server loads; run by the build hook only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.schema.definitions import (
    META,
    Definition,
    load_definitions,
    reachable,
)
from moorage.apiserver.registry.schema.types import Field, Inlined, Type
from moorage.apiserver.registry.schema.types import Kind as FieldKind

_APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_SCHEMA = f"{_APIEXTENSIONS}.JSONSchemaProps"
_DOCUMENTS = (
    "DeleteOptions", "Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList",
)  # fmt: skip
"""Types of bodies and answers that are no kind's."""

_PACKAGES = {
    "meta.v1": META,
    "apiextensions.v1": _APIEXTENSIONS,
    "apiregistration.v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
    "metrics.v1beta1": "io.k8s.metrics.pkg.apis.metrics.v1beta1",
}
"""Packages of `wire/` files whose types are not under `io.k8s.api`."""

_SPECIAL_KINDS: dict[str, FieldKind] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intOrString",
    f"{META}.Time": "time",
    f"{META}.MicroTime": "microTime",
    f"{META}.FieldsV1": "any",
    f"{_APIEXTENSIONS}.JSON": "any",
    f"{_APIEXTENSIONS}.JSONSchemaPropsOrArray": "any",
    f"{_APIEXTENSIONS}.JSONSchemaPropsOrBool": "any",
    f"{_APIEXTENSIONS}.JSONSchemaPropsOrStringArray": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
}

_WITH_SCHEMA = frozenset(f"{_SCHEMA}Or{other}" for other in ("Array", "Bool", "StringArray"))
"""Types of free JSON in which an object is a schema."""

_SCALAR_KINDS: dict[tuple[str, str], FieldKind] = {
    ("string", ""): "string",
    ("string", "byte"): "bytes",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("boolean", ""): "bool",
    ("number", "double"): "double",
    ("object", ""): "any",
}

# An absent protocol counts as TCP in the list key (port, protocol).
_KEY_DEFAULTS = {"protocol": "TCP"}


@dataclass(frozen=True, slots=True)
class WireField:
    number: int
    is_pointer: bool
    is_always: bool
    is_inlined: bool
    is_wrapped: bool
    """Whether a list of strings is a message of its own, as `Verbs` of APIResources."""


WireTable = dict[str, dict[str, WireField]]


def compile_types(definitions: dict[str, Definition], roots: Iterable[str]) -> bytes:
    """Return the bundle as msgpack: every type reachable from the roots, by its full name."""
    types = _Compiler(definitions, load_wire_table()).compile(roots)
    return msgspec.msgpack.encode(types)


def load_wire_table() -> WireTable:
    """Load the table: full type name → field name → its protobuf field."""
    table: WireTable = {}
    for entry in resources.files(__package__).joinpath("wire").iterdir():
        stem = entry.name.removesuffix(".txt")
        package = _PACKAGES.get(stem, f"io.k8s.api.{stem}")
        for line in entry.read_text().splitlines():
            message, *fields = line.split()
            table[f"{package}.{message}"] = dict(map(_parse_wire_field, fields))
    return table


def _parse_wire_field(text: str) -> tuple[str, WireField]:
    name, _, rest = text.partition("=")
    digits = rest.rstrip("*!&")
    wire = WireField(int(digits), "*" in rest, "!" in rest, name.startswith("^"), "&" in rest)
    return name.removeprefix("^"), wire


class _Compiler:
    def __init__(self, definitions: dict[str, Definition], wire: WireTable) -> None:
        self._definitions = definitions
        self._wire = wire
        self._types: dict[str, Type] = {}

    def compile(self, roots: Iterable[str]) -> dict[str, Type]:
        for name in reachable(self._definitions, roots):
            if name not in _SPECIAL_KINDS:
                definition = self._definitions[name]
                self._add(name, definition, definition.get("properties", {}))
        return self._types

    def _add(self, name: str, definition: Definition, properties: dict[str, Any]) -> None:
        """Add a type whose JSON fields are `properties`, and the messages inlined in it."""
        wire = self._wire.get(name, {})
        package = name.rsplit(".", 1)[0]
        inlined = []
        for message, place in wire.items():
            if place.is_inlined:
                full = f"{package}.{message}"
                inlined.append(Inlined(place.number, full))
                if full not in self._types:
                    own = self._fields(full)
                    inner = {key: value for key, value in properties.items() if key in own}
                    self._add(full, {}, inner)
        inner_wire = {
            field: place
            for message in inlined
            for field, place in self._fields(message.type).items()
        }
        required = frozenset(definition.get("required", ()))
        self._types[name] = Type(
            name=name,
            fields=tuple(
                _field(field, prop, wire.get(field), inner_wire.get(field), field in required)
                for field, prop in properties.items()
            ),
            inlined=tuple(inlined),
            is_atomic=definition.get("x-kubernetes-map-type") == "atomic",
        )

    def _fields(self, name: str) -> dict[str, WireField]:
        """Return the fields of a message with those of the messages inlined in it, at any depth."""
        package = name.rsplit(".", 1)[0]
        fields: dict[str, WireField] = {}
        for field, place in self._wire[name].items():
            if place.is_inlined:
                fields |= self._fields(f"{package}.{field}")
            else:
                fields[field] = place
        return fields


def _field(
    name: str,
    prop: dict[str, Any],
    own: WireField | None,
    inlined: WireField | None,
    is_required: bool,
) -> Field:
    container, kind, type_name = _shape(prop)
    place = own or inlined
    if place is not None and place.is_wrapped:
        container, kind = "", "strings"
    strategy = prop.get("x-kubernetes-patch-strategy", "")
    return Field(
        name=name,
        kind=kind,
        container=container,
        type=type_name,
        number=own.number if own else None,
        is_pointer=bool(place and place.is_pointer),
        is_always=bool(place and place.is_always),
        is_required=is_required,
        list_type=prop.get("x-kubernetes-list-type", ""),
        list_keys=tuple(prop.get("x-kubernetes-list-map-keys", ())),
        map_type=prop.get("x-kubernetes-map-type", ""),
        merge_key=prop.get("x-kubernetes-patch-merge-key", ""),
        strategies=tuple(strategy.split(",")) if strategy else (),
        key_default=_KEY_DEFAULTS.get(name, ""),
    )


def _shape(prop: dict[str, Any]) -> tuple[Any, FieldKind, str]:
    if prop.get("type") == "array":
        kind, type_name = _kind(prop["items"])
        return "list", kind, type_name
    if "additionalProperties" in prop:
        values = prop["additionalProperties"]
        if values.get("type") == "array":
            return "map", "strings", ""
        kind, type_name = _kind(values)
        return "map", kind, type_name
    kind, type_name = _kind(prop)
    return "", kind, type_name


def _kind(schema: dict[str, Any]) -> tuple[FieldKind, str]:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        special = _SPECIAL_KINDS.get(name)
        if special is not None:
            return special, _SCHEMA if name in _WITH_SCHEMA else ""
        return "object", name
    return _SCALAR_KINDS[schema["type"], schema.get("format", "")], ""


def generate_schema(kinds: Iterable[Kind], target: Path) -> None:
    """Compile the types of the kinds and of their subresources into `target`.

    Raises KeyError for a type that the definitions lack.
    """
    target.mkdir(exist_ok=True)
    bundle = compile_types(load_definitions(), _roots(kinds))
    (target / "types.msgpack").write_bytes(bundle)


def _roots(kinds: Iterable[Kind]) -> tuple[str, ...]:
    types = dict.fromkeys(f"{META}.{name}" for name in _DOCUMENTS)
    for kind in kinds:
        types |= dict.fromkeys(served.type for served in kind.served)
        types |= dict.fromkeys(part.type for part in kind.subresources.values() if part.type)
    return tuple(types)
