"""Printing for people and for programs.

A command gives rows; `--output` decides whether they are a table, JSON or YAML. Colour goes only to
a terminal, and never where NO_COLOR is set (no-color.org).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import msgspec
import yaml

FORMATS = ("table", "json", "yaml")

_GOOD = frozenset({"ok", "ready", "yes", "running", "true", "available"})
_BAD = frozenset({"problem", "no", "failed", "unavailable", "not running", "notready"})
_UNSURE = frozenset({"warning", "starting", "restarting", "pending", "unknown", "waiting"})

Row = Mapping[str, Any]

output_option: Callable[..., Any] = click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print.",
)


def show(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print rows: every field as JSON or YAML, the named columns as a table."""
    if output == "table":
        click.echo(table(rows, columns))
    else:
        show_document([dict(row) for row in rows], output)


def show_document(document: Any, output: str) -> None:
    """Print one document as JSON or YAML."""
    plain = msgspec.to_builtins(document)
    if output == "yaml":
        click.echo(yaml.safe_dump(plain, sort_keys=False).rstrip())
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Aligned columns under upper-case heads, the last one as wide as it likes."""
    heads = [column.upper().replace("_", " ") for column in columns]
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [_line(heads, widths, is_head=True)]
    lines += [_line(row, widths) for row in cells]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], *, is_head: bool = False) -> str:
    padded = [
        _coloured(cell, is_head=is_head) + " " * (width - len(cell))
        for cell, width in zip(cells, widths, strict=True)
    ]
    return "   ".join(padded).rstrip()


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _coloured(cell: str, *, is_head: bool) -> str:
    if not has_colour():
        return cell
    if is_head:
        return click.style(cell, bold=True)
    word = cell.lower()
    for words, colour in ((_GOOD, "green"), (_BAD, "red"), (_UNSURE, "yellow")):
        if word in words:
            return click.style(cell, fg=colour)
    return cell


def has_colour() -> bool:
    """Whether standard output is a terminal that wants colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def dim(text: str) -> str:
    """What matters less, where there is colour."""
    return click.style(text, dim=True) if has_colour() else text
