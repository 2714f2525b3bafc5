"""Columns declared in rows: a name, the path of the value, its type, where it is documented.

    printer(
        NAME,
        column("Ready", "status.readyReplicas", "integer", of=f"{TYPE}Status"),
        AGE,
    )

A bookmark's row is printed from an object without anything but a revision, so absent values have a
cell: the type's zero, or `absent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec.structs import replace

from moorage.api import labels
from moorage.apiserver.registry.columns import cells
from moorage.apiserver.registry.columns.cells import NONE, age, age_of, name_of
from moorage.apiserver.registry.declare.rules import getter
from moorage.apiserver.registry.kind import Column, Obj, Printer

Cell: TypeAlias = Callable[[Obj, float], Any]
"""What a column shows of an object at a time, in seconds since 1970."""

_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "boolean": False}


@dataclass(frozen=True, slots=True)
class Shown:
    """A column and what it shows."""

    column: Column
    cell: Cell


NAME = Shown(cells.NAME, lambda obj, _: name_of(obj))
AGE = Shown(cells.AGE, age_of)
CREATED_AT = Shown(
    cells.CREATED_AT.columns[1], lambda obj, now: cells.CREATED_AT.cells(obj, now)[1]
)
"""The time of creation, whose age the client computes."""


def column(
    name: str,
    where: str | Callable[[Obj], Any],
    type_: str = "string",
    *,
    of: str = "",
    absent: Any = None,
    show: Callable[[Any], Any] | None = None,
    format_: str = "",
    priority: int = 0,
    description: str = "",
    documented_by: str = "",
) -> Shown:
    """Return a column of the field at a path, or of what a function returns of the object.

    `of` is the API type that documents the path's last field; otherwise `description` or
    `documented_by` has the text. `show` makes the cell from a value that is present.
    """
    if of and isinstance(where, str):
        documented_by = f"{of}.{where.rpartition('.')[2]}"
    return Shown(
        Column(
            name,
            type_,
            format=format_,
            description=description,
            priority=priority,
            documented_by=documented_by,
        ),
        _cell(where, _ZEROS.get(type_) if absent is None else absent, show),
    )


def _cell(
    where: str | Callable[[Obj], Any], absent: Any, show: Callable[[Any], Any] | None
) -> Cell:
    get = getter(where) if isinstance(where, str) else where

    def cell(obj: Obj, now: float) -> Any:
        del now
        value = get(obj)
        if value is None:
            return absent
        return value if show is None else show(value)

    return cell


def age_column(name: str, where: str, *, of: str, absent: str = "") -> Shown:
    """Return a column of the time since the timestamp at a path."""
    get = getter(where)

    def cell(obj: Obj, now: float) -> str:
        timestamp = get(obj)
        return age(timestamp, now) if timestamp else absent

    return Shown(Column(name, documented_by=f"{of}.{where.rpartition('.')[2]}"), cell)


def marked_name(is_default: Callable[[Obj], bool]) -> Shown:
    """Return the column of the name, which is followed by `(default)` where that is so."""
    return Shown(
        cells.NAME, lambda obj, _: name_of(obj) + (" (default)" if is_default(obj) else "")
    )


def containers_of(template: str = "spec.template", *, priority: int = 1) -> tuple[Shown, Shown]:
    """Return the columns of the containers of the pod template at a path, and of their images."""
    get = getter(f"{template}.spec.containers")

    def shown(column: Column, field: str) -> Shown:
        def cell(obj: Obj, now: float) -> str:
            del now
            return ",".join(container.get(field, "") for container in get(obj) or ())

        return Shown(replace(column, priority=priority), cell)

    return shown(cells.CONTAINERS, "name"), shown(cells.IMAGES, "image")


def selector_text(selector: Obj | None) -> str:
    """Format a label selector as `a=1,b in (x,y)`; `<none>` for one that is absent or empty."""
    return str(labels.from_object(selector)) or NONE


def selector_column(
    of: str, show: Callable[[Any], str] = selector_text, *, where: str = "spec.selector"
) -> Shown:
    """Return the wide column of a selector; `show` returns its text, of None too."""
    return column("Selector", where, of=of, priority=1, absent=show(None), show=show)


def printer(*rows: Shown, conditions: Callable[[Obj], list[Obj]] | None = None) -> Printer:
    """Return the printer of a kind with these columns."""
    makers: Sequence[Cell] = [row.cell for row in rows]
    return Printer(
        columns=tuple(row.column for row in rows),
        cells=lambda obj, now: [cell(obj, now) for cell in makers],
        conditions=conditions,
    )
