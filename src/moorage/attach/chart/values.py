"""Values of the chart as files: values.yaml with each description, and the schema of it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.api.meta import Raw
from moorage.api.yaml_text import dump
from moorage.attach.host_paths import path_schemas
from moorage.attach.values import Values

_WIDTH = 78
_OWN_DEFAULTS: Raw = {"namespace": "", "createNamespace": False}
"""Defaults that differ from those of `moor attach`: Helm has the release's namespace."""
_OWN_DESCRIPTIONS = {
    "namespace": "Namespace of the parts; that of the release if empty.",
    "createNamespace": "Have the namespace among the objects, with its pod security labels. Only "
    "with a namespace that is not the release's, which Helm needs beforehand.",
}
_HEAD = """\
# Values of the chart moorage: the same as those of `moor attach --values`.
# Made by `make chart`; do not edit it.
"""


def values_text() -> str:
    """Return values.yaml: every value with its default and its description."""
    return _HEAD + "\n".join(_lines(schema(), defaults(), "")) + "\n"


def schema_text() -> str:
    """Return values.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def defaults() -> Raw:
    """Return the chart's default values."""
    raw: Raw = msgspec.json.decode(msgspec.json.encode(Values()))
    return raw | _OWN_DEFAULTS


def schema() -> Raw:
    """Return the JSON schema of the values, in one piece."""
    made = msgspec.json.schema(Values)
    resolved: Raw = _resolved({"$ref": made["$ref"]}, made["$defs"])
    for name, description in _OWN_DESCRIPTIONS.items():
        resolved["properties"][name]["description"] = description
        resolved["properties"][name]["default"] = _OWN_DEFAULTS[name]
    namespace = resolved["properties"]["namespace"]
    namespace["pattern"] = f"^$|{namespace['pattern']}"
    agent = resolved["properties"]["agent"]
    cri, item, whole = path_schemas()
    agent["properties"]["cri"] |= cri
    agent["properties"]["hostPaths"]["items"] |= item
    agent |= whole
    # Helm adds it to the values of every chart that is below another.
    resolved["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | resolved


def _resolved(node: Any, definitions: Raw) -> Any:
    if isinstance(node, list):
        return [_resolved(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(reference := node.get("$ref"), str):
        name = reference.rsplit("/", 1)[-1]
        above = {key: value for key, value in node.items() if key != "$ref"}
        return _resolved(definitions[name], definitions) | above
    if isinstance(parts := node.get("allOf"), list) and len(parts) == 1:
        above = {key: value for key, value in node.items() if key != "allOf"}
        return _resolved(parts[0], definitions) | above
    return {key: _resolved(value, definitions) for key, value in node.items() if key != "title"}


def _lines(node: Raw, values: Raw, indent: str) -> Iterator[str]:
    for name, value in values.items():
        described = node["properties"][name]
        yield ""
        text = described.get("description", "")
        for choice in (described.get("enum"),):
            if choice:
                text += f" One of {', '.join(choice)}."
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        is_section = "properties" in described and "requests" not in described["properties"]
        if is_section:
            yield f"{indent}{name}:"
            yield from _lines(described, value, indent + "  ")
        else:
            written = dump({name: value}).rstrip("\n").split("\n")
            yield from (f"{indent}{line}" for line in written)
