"""Additional printer columns: cells read by a JSONPath.

The JSONPath of a column is a chain of names (`.spec.replicas`, `['a.b']`), indexes (`[0]`, `[-1]`,
`[*]`) and filters (`[?(@.type=="Ready")]`); the cell shows the first value that it finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from moorage.apiserver.registry.columns.cells import AGE, INVALID, NAME, age, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer

_PATH_CHARS = 500
"""The tokens of a path are found in time quadratic in its length."""

_Step = Callable[[Any], Iterable[Any]]
_TOKEN = re.compile(
    r"""\.(?P<name>(?:[^.\[\]\\]|\\.)+)
    |\[(?P<index>-?\d+)\]
    |\[(?P<any>\*)\]
    |\[['"](?P<key>[^'"]+)['"]\]
    |\[\?\(@(?P<left>[^=!<>()]*?)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>[^()]+?)\s*\)\]
    |\[\?\(@(?P<present>[^=!<>()]*)\)\]""",
    re.VERBOSE,
)


class PathError(ValueError):
    """A JSONPath is malformed, or uses what printer columns do not support."""


def compile_path(path: str) -> Callable[[Any], Any]:
    """Return the first value at a JSONPath, or None, as a function. Raises PathError."""
    steps = _steps(path)

    def find(value: Any) -> Any:
        values: Iterable[Any] = (value,)
        for step in steps:
            values = [member for item in values for member in step(item)]
        return next(iter(values), None)

    return find


def _steps(path: str) -> list[_Step]:
    if len(path) > _PATH_CHARS:
        raise PathError(f"a JSONPath has at most {_PATH_CHARS} characters")
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[_Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PathError(f"{path}: unrecognized character at {position}")
        steps.append(_step(match))
        position = match.end()
    return steps


def _step(match: re.Match[str]) -> _Step:
    groups = match.groupdict()
    if groups["name"] is not None:
        name = re.sub(r"\\(.)", r"\1", groups["name"])
        return _members if name == "*" else _member(name)
    if groups["key"] is not None:
        return _member(groups["key"])
    if groups["index"] is not None:
        return _item(int(groups["index"]))
    if groups["any"] is not None:
        return _members
    if groups["present"] is not None:
        find = compile_path(groups["present"])
        return lambda value: (item for item in _members(value) if find(item) is not None)
    return _filter(groups["left"], groups["operator"], groups["right"])


def _member(name: str) -> _Step:
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _item(index: int) -> _Step:
    def find(value: Any) -> Iterable[Any]:
        is_inside = isinstance(value, list) and -len(value) <= index < len(value)
        return (value[index],) if is_inside else ()

    return find


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        return value
    return value.values() if isinstance(value, dict) else ()


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


def _filter(left: str, operator: str, right: str) -> _Step:
    find, wanted = compile_path(left), _literal(right)
    compare = _COMPARISONS[operator]

    def select(value: Any) -> Iterator[Any]:
        for item in _members(value):
            left_value = find(item)
            if type(left_value) is type(wanted) and compare(left_value, wanted):
                yield item

    return select


def _literal(text: str) -> Any:
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError as error:
        raise PathError(f"{text} is neither a string, a number nor a boolean") from error


def printer_of(columns: Sequence[Obj]) -> Printer:
    """Return the printer of a version's additional columns; Name comes first.

    Without columns there is Age. Raises PathError.
    """
    if not columns:
        return Printer(
            columns=(NAME, replace(AGE, type="date")),
            cells=lambda obj, now: [name_of(obj), age_of(obj, now)],
        )
    cells = [_cell(column) for column in columns]
    return Printer(
        columns=(NAME, *map(_column, columns)),
        cells=lambda obj, now: [name_of(obj), *(cell(obj, now) for cell in cells)],
    )


def _column(column: Obj) -> Column:
    return Column(
        column["name"],
        column["type"],
        column.get("format", ""),
        column.get("description")
        or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
        column.get("priority", 0),
    )


def _cell(column: Obj) -> Callable[[Obj, float], Any]:
    find, kind = compile_path(column["jsonPath"]), column["type"]

    def cell(obj: Obj, now: float) -> Any:
        value = find(obj)
        if value is None:
            return None
        match kind:
            case "string":
                return value if isinstance(value, str) else _text(value)
            case "boolean":
                return value if isinstance(value, bool) else None
            case "date":
                return _age(value, now)
            case "integer" | "number" if isinstance(value, bool) or not _is_number(value):
                return None
            case "integer":
                return int(value)
        return value

    return cell


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _age(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return age(value, now)
    except ValueError:
        return INVALID
