"""Structure of a custom resource: what a structural schema says of fields, lists and maps.

Value validation (`maximum`, `pattern`, `anyOf`, …) is not part of it: see `rules`. Source: API docs
"Specifying a structural schema".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any]
"""One JSONSchemaProps object."""

_OPEN = "x-kubernetes-preserve-unknown-fields"
_NO_PROPERTIES: Mapping[str, Structure] = {}


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a structural schema.

    `type` is empty for any value. `values` is the structure of a map's values; `is_open` permits
    fields that are not specified (`x-kubernetes-preserve-unknown-fields`). An embedded resource
    has apiVersion, kind and metadata, which always exist. `list_type` is `atomic`, `set` or `map`;
    `map_type` `granular` or `atomic`.
    """

    type: str = ""
    properties: Mapping[str, Structure] = msgspec.field(default_factory=dict)
    items: Structure | None = None
    values: Structure | None = None
    is_open: bool = False
    is_embedded: bool = False
    is_nullable: bool = False
    has_default: bool = False
    default: Any = None
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    map_type: str = "granular"


def has_embedded(structure: Structure) -> bool:
    """Return whether there are embedded resources anywhere in a structure."""
    below = [*structure.properties.values(), structure.items, structure.values]
    return structure.is_embedded or any(has_embedded(inner) for inner in below if inner)


ANYTHING = Structure(is_open=True)
"""The structure of a value that is not specified inside an open one."""

NOTHING = Structure()
"""The structure of a value without schema: of an object, no field is kept."""


def compile_structure(schema: Schema) -> Structure:
    """Return the structure of a schema that passed the validation of its definition."""
    is_open = bool(schema.get(_OPEN))
    items = schema.get("items")
    if isinstance(items, dict) and is_open:
        # The items of an open list are open, too.
        items = {**items, _OPEN: True}
    properties = schema.get("properties", {})
    return Structure(
        type=schema.get("type", ""),
        properties={name: compile_structure(inner) for name, inner in properties.items()}
        or _NO_PROPERTIES,
        items=compile_structure(items) if isinstance(items, dict) else None,
        values=None if properties else _values(schema.get("additionalProperties")),
        is_open=is_open or (bool(properties) and "additionalProperties" in schema),
        is_embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        is_nullable=bool(schema.get("nullable")),
        has_default=schema.get("default") is not None,
        default=schema.get("default"),
        list_type=schema.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
        map_type=schema.get("x-kubernetes-map-type") or "granular",
    )


def _values(additional: Any) -> Structure | None:
    """Return the structure of a map's values; where any are permitted, objects lose all fields."""
    if isinstance(additional, dict):
        return compile_structure(additional)
    return None if additional is None else NOTHING
