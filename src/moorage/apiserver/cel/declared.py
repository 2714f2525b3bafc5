"""Declared types: what a schema bounds of its values, as the estimate of costs needs it.

Where a schema has no bound, the size of the largest request is one. Source: apiserver
`cel/common/schemas.go`, `cel/limits.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.apiserver.cel.values import Schema, as_resource, names_of

_REQUEST_BYTES = 3 * 1024 * 1024
_TEXT_BYTES = _REQUEST_BYTES - 2
"""The longest text, without its quotes."""

_LEAST_TEXT, _LEAST_OBJECT = 2, 2
_LEAST = {"boolean": 4, "number": 1, "integer": 1}
_TEXTS = {"date": (12, 12), "date-time": (21, 32), "duration": (3, 32)}
"""Least and largest size of texts with a format."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The type of a value: at most so many elements, at least so many bytes of JSON."""

    most_elements: int
    least_bytes: int
    fields: Mapping[str, Declared] = field(default_factory=dict)
    keys: Declared | None = None
    items: Declared | None = None

    def at(self, path: tuple[str, ...]) -> Declared | None:
        """Return the type at a path of fields, `@keys`, `@items` and `@values`."""
        found: Declared | None = self
        for name in path:
            if found is None:
                return None
            if name in ("@items", "@values"):
                found = found.items
            elif name == "@keys":
                found = found.keys
            else:
                found = found.fields.get(name)
        return found


_KEY = Declared(0, _LEAST_TEXT)


def declare(schema: Schema, *, is_resource: bool = False) -> Declared | None:
    """Return the type of a schema's values, None where expressions see none."""
    if schema.get("x-kubernetes-int-or-string"):
        return Declared(_most_chars(schema, _TEXT_BYTES), 1)
    if is_resource:
        schema = as_resource(schema)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            return _object(schema)
        case "string":
            return _text(schema)
        case "boolean" | "number" | "integer" as name:
            return Declared(0, _LEAST[name])
    return None


def _below(schema: Schema) -> Declared | None:
    return declare(schema, is_resource=bool(schema.get("x-kubernetes-embedded-resource")))


def _list(schema: Schema) -> Declared | None:
    items = _below(schema.get("items") or {})
    if items is None:
        return None
    most = schema.get("maxItems")
    if most is None:
        most = (_REQUEST_BYTES - 2) // (items.least_bytes + 1)
    return Declared(max(most, 0), 2, items=items)


def _object(schema: Schema) -> Declared | None:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        inner = _below(values)
        if inner is None:
            return None
        most = schema.get("maxProperties")
        if most is None:
            most = (_REQUEST_BYTES - 2) // (inner.least_bytes + 6)
        return Declared(max(most, 0), 2, keys=_KEY, items=inner)
    fields: dict[str, Declared] = {}
    least, required = _LEAST_OBJECT, schema.get("required") or ()
    for name, own in (schema.get("properties") or {}).items():
        inner = _below(own)
        if inner is None:
            continue
        fields.update(dict.fromkeys(names_of(name), inner))
        if name in required and "default" not in own:
            least += len(name) + inner.least_bytes + 4
    return Declared(0, least, fields=fields)


def _text(schema: Schema) -> Declared:
    kind = schema.get("format", "")
    if kind in _TEXTS:
        least, most = _TEXTS[kind]
        return Declared(most, least)
    if kind == "byte":
        return Declared(max(schema.get("maxLength", _TEXT_BYTES), 0), _LEAST_TEXT)
    if "maxLength" not in schema and schema.get("enum"):
        texts = [len(value.encode()) for value in schema["enum"] if isinstance(value, str)]
        return Declared(max(texts, default=0), _LEAST_TEXT)
    return Declared(_most_chars(schema, _TEXT_BYTES), _LEAST_TEXT)


def _most_chars(schema: Schema, otherwise: int) -> int:
    """Return the most bytes of a text: `maxLength` counts characters, which have up to four."""
    return max(schema["maxLength"], 0) * 4 if "maxLength" in schema else otherwise
