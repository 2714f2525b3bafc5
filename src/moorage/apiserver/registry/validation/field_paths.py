"""Field path validation: simple JSON paths that name one field of a structural schema.

Source: apiextensions `schema/cel.ValidFieldPath` of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from moorage.apiserver.registry.validation.structural_schema import Schema

_TOKEN = re.compile(r"[.\[\]]|'(?:.*?[^\\])?'|[^.\[\]'][^.\[\]]*|'.*", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "'": "'", "\\": "\\",
}  # fmt: skip


class FieldPathError(ValueError):
    """A path names no field; the text says why."""


def resolve_field_path(
    path: str, schema: Schema, *, permits_brackets: bool = True
) -> tuple[str, Schema | None]:
    """Return the path in its usual form and the schema of its field.

    The schema is None for a value without schema. Raises FieldPathError.
    """
    tokens, names = iter(_TOKEN.findall(path)), ""
    node: Schema | None = schema
    for token in tokens:
        if token == "[" and not permits_brackets:
            raise FieldPathError("array notation is not allowed")
        if token not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {token}")
        name = next(tokens, None)
        if name is None:
            raise FieldPathError("unexpected end of JSON path")
        if token == "[":
            name = _unquoted(name)
        names, node = _step(names, node, name)
        if token == "[":
            _expect_bracket(next(tokens, None))
    return names, node


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")
    for escape in _ESCAPE.finditer(token[1:-1]):
        if escape.group(1) not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {escape.group()}")
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group(1)], token[1:-1])


def _step(path: str, node: Schema | None, name: str) -> tuple[str, Schema | None]:
    properties = (node or {}).get("properties", {})
    if properties:
        if name not in properties:
            raise FieldPathError("does not refer to a valid field")
        return (f"{path}.{name}" if path else name), properties[name]
    values = (node or {}).get("additionalProperties")
    if values is None:
        raise FieldPathError("does not refer to a valid field")
    return f"{path}[{name}]", values if isinstance(values, dict) else None


def _expect_bracket(token: str | None) -> None:
    if token is None:
        raise FieldPathError("unexpected end of JSON path")
    if token != "]":
        raise FieldPathError(f"expected ] but got {token}")
