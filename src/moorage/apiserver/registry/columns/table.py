"""Table rendering: the form of objects that `kubectl get` requests.

A list is one Table with a row for each object; a watch event holds a Table of one row, and only the
first of a stream carries the column definitions. Source: API docs "Receiving resources as Tables",
`meta.k8s.io/v1` and `v1beta1`, which differ in name only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.kind import Column, Obj, Printer
from moorage.apiserver.registry.schema.types import read_generated

BUNDLE = "generated/descriptions.json"


def describe(column: Column) -> str:
    """Return the column's description as sent to clients.

    Raises FileNotFoundError with the command to run when the package was not built, and KeyError
    for a field unknown to the build.
    """
    if not column.documented_by:
        return column.description
    return _load_descriptions()[column.documented_by]


@lru_cache(maxsize=1)
def _load_descriptions() -> dict[str, str]:
    packed = read_generated(__package__, BUNDLE)
    return msgspec.json.decode(packed, type=dict[str, str])


Table = dict[str, Any]


class IncludeObject(Enum):
    """The part of the object a row includes: the values of the `includeObject` parameter."""

    METADATA = "Metadata"
    OBJECT = "Object"
    NONE = "None"


def _as_it_is(obj: Obj) -> Obj:
    return obj


def render_table(
    printer: Printer | None,
    objects: Sequence[Obj],
    *,
    now: float,
    include: IncludeObject,
    list_metadata: Mapping[str, Any],
    version: str,
    has_columns: bool = True,
    as_served: Callable[[Obj], Obj] = _as_it_is,
) -> Table:
    """Render objects as a Table.

    `printer` is None for kinds that have none. The objects are in their storage version, which
    printers read; `as_served` returns one with the kind and apiVersion the client requested, for
    rows that include the whole object. `now` is in seconds since 1970, `version` is that of
    meta.k8s.io, and `list_metadata` is the list's own.
    """
    printer = printer or CREATED_AT
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": list_metadata,
        "columnDefinitions": _column_definitions(printer) if has_columns else None,
        "rows": [_row(printer, obj, now, include, version, as_served) for obj in objects],
    }


def render_row(
    printer: Printer | None,
    obj: Obj,
    *,
    now: float,
    include: IncludeObject,
    version: str,
    as_served: Callable[[Obj], Obj] = _as_it_is,
) -> Obj:
    """Render the row of one object, as `render_table` does."""
    return _row(printer or CREATED_AT, obj, now, include, version, as_served)


def row_table(
    printer: Printer | None,
    obj: Obj,
    *,
    now: float,
    include: IncludeObject,
    version: str,
    has_columns: bool,
    as_served: Callable[[Obj], Obj] = _as_it_is,
) -> Table:
    """Render the Table of one object for a watch event; its resourceVersion is the object's."""
    return render_table(
        printer,
        [obj],
        now=now,
        include=include,
        list_metadata={"resourceVersion": obj["metadata"].get("resourceVersion", "")},
        version=version,
        has_columns=has_columns,
        as_served=as_served,
    )


def bookmark_table(
    printer: Printer | None,
    obj: Obj,
    *,
    version: str,
    include: IncludeObject = IncludeObject.METADATA,
    has_columns: bool = False,
) -> Table:
    """Render the Table of a bookmark, an object with only a resourceVersion: blank cells."""
    return row_table(
        printer, obj, now=0.0, include=include, version=version, has_columns=has_columns
    )


def _row(
    printer: Printer,
    obj: Obj,
    now: float,
    include: IncludeObject,
    version: str,
    as_served: Callable[[Obj], Obj],
) -> Obj:
    row: Obj = {"cells": printer.cells(obj, now)}
    conditions = printer.conditions(obj) if printer.conditions is not None else []
    if conditions:
        row["conditions"] = conditions
    match include:
        case IncludeObject.METADATA:
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{version}",
                "metadata": obj["metadata"],
            }
        case IncludeObject.OBJECT:
            row["object"] = as_served(obj)
        case IncludeObject.NONE:
            row["object"] = None
    return row


@lru_cache(maxsize=64)
def _column_definitions(printer: Printer) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": describe(column),
            "priority": column.priority,
        }
        for column in printer.columns
    ]
