"""YAML nodes with their positions: where in a text each key and value of a document stands.

Only texts that `moorage.api.yaml_values` accepted come here, so depth and number are bounded. Like
it, this reads the parser's events without recursion. Positions are character offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from moorage.migrate.rules.changes import Path

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotInTextError(LookupError):
    """A path of the document has no text of its own: it comes from an alias or a merge."""


@dataclass(slots=True)
class Node:
    """A value in a text. `entries` are those of a map, `items` those of a list."""

    kind: str
    start: int
    end: int
    is_flow: bool = False
    style: str | None = None
    has_anchor: bool = False
    text: str = ""
    """The text of a scalar, without quotes."""
    entries: list[tuple[Node, Node]] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    pending_key: Node | None = None

    def entry(self, key: str | int) -> tuple[Node, Node]:
        """Return a map's entry: its key and its value. Raises NotInTextError."""
        # The last of repeated keys counts, as in the value.
        for key_node, value in reversed(self.entries):
            if key_node.text == key:
                return key_node, value
        raise NotInTextError(str(key))


MAP = "map"
LIST = "list"
SCALAR = "scalar"
ALIAS = "alias"


def node_at(root: Node, path: Path) -> Node:
    """Return the node at a path. Raises NotInTextError."""
    node = root
    for step in path:
        if node.kind == MAP:
            node = node.entry(step)[1]
        elif node.kind == LIST and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            raise NotInTextError(str(step))
    return node


def read_nodes(text: str) -> list[Node | None]:
    """Return the root node of each document of a text without byte order mark.

    A text that `yaml_values` refuses may raise anything of PyYAML's.
    """
    parser = _Parser(text)
    roots: list[Node | None] = []
    stack: list[Node] = []
    while (event := parser.get_event()) is not None:
        kind = type(event)
        if kind is yaml.DocumentStartEvent:
            roots.append(None)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            stack.append(_collection(event))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            node = stack.pop()
            node.end = event.end_mark.index if node.is_flow else _last_end(node)
            _place(stack, roots, node)
        elif kind is yaml.ScalarEvent:
            _place(stack, roots, _scalar(event, text))
        elif kind is yaml.AliasEvent:
            node = Node(ALIAS, event.start_mark.index, event.end_mark.index)
            _place(stack, roots, node)
    return roots


def _collection(event: Any) -> Node:
    kind = MAP if type(event) is yaml.MappingStartEvent else LIST
    start = event.start_mark.index
    return Node(
        kind, start, start, is_flow=bool(event.flow_style), has_anchor=event.anchor is not None
    )


def _scalar(event: Any, text: str) -> Node:
    start, end = event.start_mark.index, event.end_mark.index
    if event.style in ("|", ">"):
        # Such an event ends at the next token, perhaps lines below.
        end = start + len(text[start:end].rstrip())
    return Node(
        SCALAR,
        start,
        end,
        style=event.style or None,
        has_anchor=event.anchor is not None,
        text=event.value,
    )


def _last_end(node: Node) -> int:
    """Return where a block collection's last child ends: its own event ends at the next token."""
    if node.entries:
        key, value = node.entries[-1]
        return max(key.end, value.end)
    return node.items[-1].end if node.items else node.start


def _place(stack: list[Node], roots: list[Node | None], node: Node) -> None:
    if not stack:
        roots[-1] = node
        return
    parent = stack[-1]
    if parent.kind == LIST:
        parent.items.append(node)
    elif parent.pending_key is None:
        parent.pending_key = node
    else:
        parent.entries.append((parent.pending_key, node))
        parent.pending_key = None
