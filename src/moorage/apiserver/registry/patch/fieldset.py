"""Field sets, in their stored form: FieldsV1 trees.

A tree's keys are path elements: `f:name` a field, `k:{"name":"c"}` an item of a keyed list,
`v:"x"` a member of a set, `.` the element itself. A node without children is a member; one with
children is a member only if it has `.`. Trees are never changed in place. Source: KEP-555,
`fieldpath` serialisation of structured-merge-diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

Tree = dict[str, Any]

SELF: Final = "."
EMPTY: Tree = {}


def is_tree(value: Any) -> bool:
    """Return whether a JSON value is a valid FieldsV1 tree."""
    return isinstance(value, dict) and all(
        (not node if element == SELF else _is_element(element)) and is_tree(node)
        for element, node in value.items()
    )


def _is_element(element: str) -> bool:
    kind, separator, value = element.partition(":")
    if not separator:
        return False
    if kind == "i":
        return value.isascii() and value.isdigit()
    if kind not in ("k", "v"):
        return kind == "f"
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return kind == "v" or isinstance(decoded, dict)


def in_order(tree: Tree) -> Tree:
    """Return a tree with its elements in the order in which upstream writes them.

    Clients compare the bytes of two reads, and some decode into sorted maps in between. Hot path:
    some 10 µs for a pod.
    """
    return {element: in_order(node) if node else node for element, node in sorted(tree.items())}


def union(left: Tree, right: Tree) -> Tree:
    """Return the fields of either set."""
    if left is right:
        return left
    merged = dict(left)
    for element, node in right.items():
        merged[element] = _union(left[element], node) if element in left else node
    return merged


def _union(left: Tree, right: Tree) -> Tree:
    if left == right:
        return left
    merged = union(left, right)
    if not left or not right:
        # The side without children was a member.
        merged = {SELF: {}, **{key: node for key, node in merged.items() if key != SELF}}
    return merged


def difference(left: Tree, right: Tree) -> Tree:
    """Return the fields of the left set that are not in the right one."""
    kept: Tree = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None:
            kept[element] = node
            continue
        rest = _difference(node, other)
        if rest is not None:
            kept[element] = rest
    return kept


def _difference(left: Tree, right: Tree) -> Tree | None:
    children = difference(_children(left), _children(right))
    if _is_member(left) and not _is_member(right):
        return {SELF: {}, **children} if children else {}
    return children or None


def intersection(left: Tree, right: Tree) -> Tree:
    """Return the fields that are in both sets."""
    kept: Tree = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None:
            continue
        children = intersection(_children(node), _children(other))
        if _is_member(node) and _is_member(other):
            kept[element] = {SELF: {}, **children} if children else {}
        elif children:
            kept[element] = children
    return kept


def without_subtrees(left: Tree, right: Tree) -> Tree:
    """Return the left set without the members of the right one and their descendants."""
    kept: Tree = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None:
            kept[element] = node
        elif not _is_member(other):
            rest = without_subtrees(node, other)
            if rest or not node:
                kept[element] = rest
    return kept


def paths(tree: Tree, prefix: str = "") -> Iterator[str]:
    """Yield the members as readable paths, sorted: `.spec.containers[name="c"].image`."""
    for element in sorted(tree):
        if element == SELF:
            continue
        node, path = tree[element], prefix + element_text(element)
        if _is_member(node):
            yield path
        yield from paths(node, path)


def element_text(element: str) -> str:
    """Return one path element in readable form."""
    kind, _, value = element.partition(":")
    match kind:
        case "f":
            return f".{value}"
        case "k":
            keys = msgspec.json.decode(value)
            pairs = (f"{key}={_json(keys[key])}" for key in sorted(keys))
            return "[" + ",".join(pairs) + "]"
        case "v":
            return f"[={value}]"
        case _:
            return f"[{value}]"


def _is_member(node: Tree) -> bool:
    return not node or SELF in node


def _children(node: Tree) -> Tree:
    if SELF not in node:
        return node
    return {element: child for element, child in node.items() if element != SELF}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
