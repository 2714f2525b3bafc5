"""Declarations of kinds, columns, documents and types, against recorded tables.

A changed word in a table is what clients see: kubectl's columns, its completion, its validation.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from moorage.apiserver.registry.columns.build import generate_descriptions
from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.columns.table import BUNDLE
from moorage.apiserver.registry.kind import Kind, Strategy
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.openapi.build import generate_openapi
from moorage.apiserver.registry.schema.build import generate_schema
from tests.recording import assert_recorded, digest

_OF_CUSTOM_KINDS = frozenset({"is_remote", "refuses_new", "stored_version", "view"})


def _function(function: Callable[..., Any] | None) -> str | None:
    if function is None:
        return None
    name = getattr(function, "__qualname__", repr(type(function)))
    return f"{getattr(function, '__module__', '')}:{name}"


def _value(value: Any) -> Any:
    if callable(value):
        return _function(value)
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_value(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return {name: _value(getattr(value, name)) for name in value.__struct_fields__}
    if hasattr(value, "__dataclass_fields__"):
        return {
            field.name: _value(getattr(value, field.name))
            for field in fields(value)
            if field.init and field.name not in _OF_CUSTOM_KINDS
        }
    return value


def _declaration(kind: Kind) -> dict[str, Any]:
    shown = {field.name: _value(getattr(kind, field.name)) for field in fields(kind) if field.init
             if field.name not in ("printer", "strategy", *_OF_CUSTOM_KINDS)}  # fmt: skip
    plain = Strategy()
    rules = {name: _value(getattr(kind.strategy, name))
             for name in kind.strategy.__struct_fields__
             if getattr(kind.strategy, name) != getattr(plain, name)}  # fmt: skip
    return {**shown, "strategy": rules}


def test_kinds() -> None:
    assert_recorded(
        "apiserver/registry/kinds", {kind.resource: _declaration(kind) for kind in ALL_KINDS}
    )


def test_columns() -> None:
    printers = {kind.resource: kind.printer for kind in ALL_KINDS if kind.printer is not None}
    shown = {
        f"{resource} {number}": _value(column)
        for resource, printer in {**printers, "others": CREATED_AT}.items()
        for number, column in enumerate(printer.columns)
    }
    assert_recorded("apiserver/registry/columns", shown)


def test_descriptions_of_columns(tmp_path: Path) -> None:
    generate_descriptions(ALL_KINDS, tmp_path)
    texts = msgspec.json.decode((tmp_path / BUNDLE).read_bytes())
    assert_recorded(
        "apiserver/registry/descriptions", {name: digest(text) for name, text in texts.items()}
    )


def test_types(tmp_path: Path) -> None:
    generate_schema(ALL_KINDS, tmp_path / "types")
    types = msgspec.msgpack.decode((tmp_path / "types" / "types.msgpack").read_bytes())
    assert_recorded(
        "apiserver/registry/types", {name: digest(type_) for name, type_ in types.items()}
    )


def test_openapi(tmp_path: Path) -> None:
    generate_openapi(tmp_path / "documents")
    table: dict[str, str] = {}
    for path in (tmp_path / "documents").glob("*.gz"):
        content = gzip.decompress(path.read_bytes())
        if path.name.startswith("swagger-protobuf"):
            table[path.stem] = digest(content.hex())
            continue
        document = json.loads(content)
        paths = document.pop("paths")
        schemas = document.pop("components", {}).get("schemas") or document.pop("definitions")
        table[path.stem] = digest(document)
        for place, methods in paths.items():
            for method, operation in methods.items():
                table[f"{path.stem} {method} {place}"] = digest(operation)
        if path.stem == "swagger":
            table |= {name: digest(schema) for name, schema in schemas.items()}
        table[f"{path.stem} schemas"] = digest(schemas)
    index = json.loads((tmp_path / "documents" / "index.json").read_text())
    table["index"] = digest(sorted(index))
    assert len(set(index.values())) == len(index)
    assert_recorded("apiserver/registry/openapi", table)
