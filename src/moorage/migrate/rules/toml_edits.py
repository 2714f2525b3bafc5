"""TOML edits: tables renamed and texts replaced in a text, which else stays byte for byte.

Table headers and `key = "text"` lines are edited; the result is parsed again and must have the
values that were asked for, so that dotted keys, inline tables or multi-line strings that look like
headers lead to a refusal and never to another configuration.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.migrate.rules.handler_files import toml_key
from moorage.migrate.rules.yaml_edits import CannotEditError

_HEADER = re.compile(r"^[ \t]*\[(?!\[)(?P<keys>[^\n#]*?)\][ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_KEY = re.compile(
    r"""[ \t]*(?P<key>[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*(?P<dot>\.?)"""
)

Keys = tuple[str, ...]
"""Keys of tables, from the root of a document."""


class TomlEdits(msgspec.Struct, frozen=True):
    """Edits of a document: `tables` get another path, `texts` another value."""

    tables: Mapping[Keys, Keys] = {}
    texts: Mapping[Keys, str] = {}

    def __bool__(self) -> bool:
        return bool(self.tables or self.texts)


def edited_toml(text: str, edits: TomlEdits) -> str:
    """Return a text with the edits made. Raises CannotEditError."""
    expected = _applied(tomllib.loads(text), edits)
    result = _edited(text, edits)
    try:
        is_as_expected = tomllib.loads(result) == expected
    except tomllib.TOMLDecodeError:
        is_as_expected = False
    if not is_as_expected:
        raise CannotEditError(
            "its TOML form (inline tables, dotted keys) cannot be edited in place; change it by "
            "hand"
        )
    return result


def _applied(document: dict[str, Any], edits: TomlEdits) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    for path, text in edits.texts.items():
        _table(changed, path[:-1])[path[-1]] = text
    moved = [(new, _table(changed, old[:-1]).pop(old[-1])) for old, new in edits.tables.items()]
    for path, value in moved:
        _table(changed, path[:-1])[path[-1]] = value
    return changed


def _table(document: dict[str, Any], path: Keys) -> dict[str, Any]:
    for step in path:
        document = document.setdefault(step, {})
    return document


def _edited(text: str, edits: TomlEdits) -> str:
    headers = list(_HEADER.finditer(text))
    stops = [match.start() for match in headers] + [len(text)]
    parts = [_body(text[: stops[0]], (), edits)]
    for match, stop in zip(headers, stops[1:], strict=True):
        keys, spans = _keys(match["keys"])
        parts += (
            text[match.start() : match.start("keys")],
            _header(match["keys"], keys, spans, edits),
            text[match.end("keys") : match.end()],
            _body(text[match.end() : stop], keys, edits),
        )
    return "".join(parts)


def _header(text: str, keys: Keys, spans: list[tuple[int, int]], edits: TomlEdits) -> str:
    """Return the keys of a header with the table's new path, if it or one above it moves."""
    for old, new in edits.tables.items():
        if keys[: len(old)] == old:
            # Only the last key of a table's path changes, perhaps into several.
            start, stop = spans[len(old) - 1]
            last = ".".join(toml_key(key) for key in new[len(old) - 1 :])
            return text[:start] + last + text[stop:]
    return text


def _body(body: str, table: Keys, edits: TomlEdits) -> str:
    """Return the lines below a header, with the texts that are theirs replaced."""
    for path, value in edits.texts.items():
        if path[:-1] != table:
            continue
        line = re.compile(
            rf"(?P<lead>^[ \t]*(?P<q>[\"']?){re.escape(path[-1])}(?P=q)[ \t]*=[ \t]*)"
            r"(?P<quote>[\"'])[^\"'\n]*(?P=quote)",
            re.MULTILINE,
        )
        if match := line.search(body):
            quote = match["quote"]
            body = (
                f"{body[: match.start()]}{match['lead']}{quote}{value}{quote}{body[match.end() :]}"
            )
    return body


def _keys(text: str) -> tuple[Keys, list[tuple[int, int]]]:
    """Return the keys of a header and where each stands; none for a header of another form."""
    keys: list[str] = []
    spans: list[tuple[int, int]] = []
    at = 0
    while match := _KEY.match(text, at):
        key = match["key"]
        keys.append(_unquoted(key))
        spans.append(match.span("key"))
        at = match.end()
        if not match["dot"]:
            break
    return (tuple(keys), spans) if at == len(text) else ((), [])


def _unquoted(key: str) -> str:
    if key.startswith("'"):
        return key[1:-1]
    if not key.startswith('"'):
        return key
    try:
        return str(tomllib.loads(f"k = {key}")["k"])
    except tomllib.TOMLDecodeError:
        return key
