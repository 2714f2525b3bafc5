"""Output of commands: tables for people, JSON and YAML for programs.

A command passes rows; `--output` selects the format. Colour is used only on a terminal, and never
if NO_COLOR is set (no-color.org).
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
import yaml

from moorage.api.text import printable

if TYPE_CHECKING:
    from moorage.attach.outcome import Outcome


_GAP = "   "
FORMATS = ("table", "json", "yaml")

_GOOD = frozenset({"ok", "ready", "yes", "running", "true", "available"})
_BAD = frozenset({"problem", "no", "failed", "unavailable", "not running", "notready"})
_UNSURE = frozenset({"warning", "starting", "restarting", "pending", "unknown", "waiting"})

_ESCAPED_IN_JSON = {
    number: f"\\u{number:04x}"
    for numbers in (range(0x7F, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A))
    for number in numbers
}
"""Control characters that JSON allows in strings as they are, some of which terminals obey."""

Row = Mapping[str, Any]

output_option: Callable[..., Any] = click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Output format.",
)


WIDTH = 100
"""Maximum width of a wrapped table, in columns."""
_INDENT = 4
_LEAST_LAST_WIDTH = 20


def show(
    rows: Sequence[Row],
    columns: Sequence[str],
    output: str,
    *,
    notes: Sequence[Sequence[str]] = (),
) -> None:
    """Print rows: all fields as JSON or YAML, the given columns as a table.

    `notes` holds, for each row, the sentences to print below it in a table, wrapped to WIDTH.
    """
    if output == "table":
        click.echo(table(rows, columns, notes))
    else:
        show_document([dict(row) for row in rows], output)


def show_document(document: Any, output: str) -> None:
    """Print one document as JSON or YAML."""
    plain = msgspec.to_builtins(document)
    if output == "yaml":
        click.echo(yaml.safe_dump(plain, sort_keys=False).rstrip())
    else:
        text = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
        click.echo(text.translate(_ESCAPED_IN_JSON))


def table(rows: Sequence[Row], columns: Sequence[str], notes: Sequence[Sequence[str]] = ()) -> str:
    """Return a table of aligned columns under upper-case heads.

    With `notes`, the last column and the notes are wrapped to WIDTH; without, nothing is.
    """
    heads = [column.upper().replace("_", " ") for column in columns]
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [_line(heads, widths, is_head=True)]
    if not notes:
        return "\n".join([*lines, *(_line(row, widths) for row in cells)])
    start = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    last_width = max(WIDTH - start, _LEAST_LAST_WIDTH)
    for row, sentences in zip(cells, notes, strict=True):
        first, *more = _wrapped(row[-1], last_width)
        lines.append(_line([*row[:-1], first], [*widths[:-1], len(first)]))
        lines += [" " * start + text for text in more]
        for sentence in sentences:
            lines += [" " * _INDENT + text for text in _wrapped(sentence, WIDTH - _INDENT)]
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    # Paths and commands stay whole, whatever their length.
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [printable(line) for line in lines]


def _line(cells: Sequence[str], widths: Sequence[int], *, is_head: bool = False) -> str:
    padded = [
        _coloured(cell, is_head=is_head) + " " * (width - len(cell))
        for cell, width in zip(cells, widths, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return printable(", ".join(map(str, value))) or "-"
    return printable(str(value))


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
    """Return whether standard output is a terminal and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def dim(text: str) -> str:
    """Return the text dimmed, or unchanged without colour."""
    return click.style(text, dim=True) if has_colour() else text


# Table of what works where: of `moor attach` at its end, and of `moor runtimes` elsewhere.

_COLUMNS = ("node", "engine", "works", "does_not_work")


def outcome_table(outcome: Outcome) -> str:
    """Return a row for each node, its reasons below it, and the classes of handlers that work."""
    rows = [
        {
            "node": node.node,
            "engine": node.engine,
            "works": [
                f"{handler} ({isolation})" if isolation else handler
                for handler, isolation in node.working.items()
            ],
            "does_not_work": list(node.broken),
        }
        for node in outcome.nodes
    ]
    notes = [
        [
            *(f"{handler}: {reason}" for handler, reason in node.broken.items()),
            *((f"{node.problem}: {node.remedy or 'nothing to do'}",) if node.problem else ()),
        ]
        for node in outcome.nodes
    ]
    return "\n".join((table(rows, _COLUMNS, notes), *_classes(outcome)))


def _classes(outcome: Outcome) -> Iterator[str]:
    for handler, names in outcome.classes.items():
        if any(handler in node.working for node in outcome.nodes):
            yield f"handler {handler}: runtimeClassName {', '.join(names)}"
