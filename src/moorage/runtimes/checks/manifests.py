"""Manifests: objects of YAML and JSON files, and the lines of their fields.

A text is read under the bounds of `moorage.api.yaml_values`; lines come from the parser's marks, by
walking down one path at a time, so that aliases cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from moorage.api.yaml_values import YamlError, iter_documents
from moorage.runtimeclass.demands import Path

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "<<"
_ACTION = re.compile(r"\{\{-?\s*[\w.$/(\"]")
NOT_RENDERED = "a Helm template: render it first, `helm template CHART | moor check -`"


class UnreadableError(ValueError):
    """A text that is no YAML; the message is one line."""


class Manifest(msgspec.Struct, frozen=True):
    """An object of a file. `node` is the parser's, at `path` in it for the items of a List."""

    file: str
    value: dict[str, Any]
    node: Any
    path: Path = ()

    def line(self, path: Path = ()) -> int:
        """Return the line of a field, from 1; of the nearest one above it if it is not there."""
        return line_of(self.node, (*self.path, *path))


def read_manifests(text: str, file: str) -> list[Manifest]:
    """Return the objects of a text, those of Lists one by one. Raises UnreadableError.

    Documents that are no objects, such as empty ones, are left out.
    """
    try:
        values = [document.value for document in iter_documents(text)]
        # After the bounds are checked: the composer recurses for each level.
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except (YamlError, yaml.YAMLError) as error:
        if _ACTION.search(text):
            raise UnreadableError(f"is {NOT_RENDERED}") from error
        raise UnreadableError(" ".join(str(error).split())) from error
    return [
        manifest
        for value, node in zip(values, nodes, strict=False)
        if isinstance(value, dict)
        for manifest in _objects(Manifest(file, value, node))
    ]


def _objects(manifest: Manifest) -> Iterator[Manifest]:
    items = manifest.value.get("items")
    kind = manifest.value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield manifest
        return
    for index, item in enumerate(items):
        if isinstance(item, dict):
            path = (*manifest.path, "items", index)
            # A List of Lists is as deep as YAML may be.
            yield from _objects(Manifest(manifest.file, item, manifest.node, path))


def line_of(node: Any, path: Path) -> int:
    """Return the line, from 1, of a field or list item below a node."""
    line: int = node.start_mark.line + 1
    for step in path:
        found = _below(node, step)
        if found is None:
            return line
        line, node = found
    return line


def _below(node: Any, step: str | int) -> tuple[int, Any] | None:
    """Return the line of a field or item, and its node."""
    if isinstance(node, yaml.SequenceNode):
        if isinstance(step, int) and step < len(node.value):
            item = node.value[step]
            return item.start_mark.line + 1, item
        return None
    # Each mapping is looked at once: merges of merges name the same one again and again.
    pending, seen = [node], set[int]()
    while pending:
        mapping = pending.pop()
        if not isinstance(mapping, yaml.MappingNode) or id(mapping) in seen:
            continue
        seen.add(id(mapping))
        for key, value in reversed(mapping.value):
            if isinstance(key, yaml.ScalarNode) and key.value == step:
                return key.start_mark.line + 1, value
        for key, value in reversed(mapping.value):
            if isinstance(key, yaml.ScalarNode) and key.value == _MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                pending += reversed(sources)
    return None
