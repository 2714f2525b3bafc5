"""YAML bodies: server-side apply sends them, and any client may.

Scalars follow YAML 1.1 as Go's library reads them, but dates stay text; keys that occur twice are
reported with their lines, and the last one wins.
"""

from __future__ import annotations

from typing import Any

import yaml

from moorage.registry.schema.errors import DecodeError

# A document of the size limit has fewer values than this; only aliases could make more.
_MAX_VALUES = 2_000_000
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """The safe loader without dates."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
    }


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The document as JSON values, and a sentence for each repeated key.

    Raises DecodeError when it is not YAML, has several documents, or leans on aliases so much that
    it would grow out of hand.
    """
    try:
        loader = _Loader(body)
    except yaml.YAMLError as error:
        raise DecodeError(f"yaml: {_one_line(error)}") from error
    try:
        node = loader.get_single_node()
        if node is None:
            return None, []
        repeated = _repeated_keys(node)
        return _JsonValues().convert(loader.construct_document(node)), repeated
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"yaml: {_one_line(error)}") from error
    finally:
        loader.dispose()


def _repeated_keys(root: yaml.Node) -> list[str]:
    found: list[str] = []
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                if key.value in keys:
                    line = key.start_mark.line + 1
                    found.append(f'line {line}: key "{key.value}" already set in map')
                keys.add(str(key.value))
                waiting.append(value)
    return found


class _JsonValues:
    """YAML's richer values as JSON, with a bound on how many there may be."""

    def __init__(self) -> None:
        self._count = 0

    def convert(self, value: Any) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES:
            raise DecodeError("yaml: document contains excessive aliasing")
        if isinstance(value, dict):
            return {_key(key): self.convert(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.convert(item) for item in value]
        if value is None or isinstance(value, str | bool | int | float):
            return value
        raise DecodeError(f"yaml: value of type {type(value).__name__} has no JSON form")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}: " if mark else ""
    return where + " ".join(str(problem).split())
