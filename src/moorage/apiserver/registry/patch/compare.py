"""Field comparison: the fields of an object, and those that differ between two.

`fields_of` returns the fields owned by an apply; `changes` those owned by an update, which marks a
map, list or item that it creates with `.`; an apply does so only for list items. Hot path: a pod's
creation in 60 µs (bench/hotpaths.py).
"""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.patch.fieldset import SELF, Tree
from moorage.apiserver.registry.patch.merge_schema import (
    MergeSchema,
    Part,
    Shape,
    item_element,
    value_element,
)

Map = dict[str, Any]
# Hot path: most fields are leaves.
_LEAF = Shape.LEAF


def fields_of(merge_schema: MergeSchema, type_name: str, obj: Map) -> Tree:
    """Return every field that an object sets, for a manager that applies it."""
    return _object_fields(merge_schema, merge_schema.parts(type_name), obj, marks=False)


def _object_fields(
    merge_schema: MergeSchema, parts: dict[str, Part], obj: Map, *, marks: bool
) -> Tree:
    tree: Tree = {}
    for name, value in obj.items():
        part = parts.get(name)
        if part is None:
            continue
        if part.shape is _LEAF or not value:
            tree[part.element] = {}
        else:
            tree[part.element] = _value_fields(merge_schema, part, value, marks=marks)
    return tree


def _value_fields(merge_schema: MergeSchema, part: Part, value: Any, *, marks: bool) -> Tree:
    """Return the node of one present value; `marks`: containers are members themselves."""
    shape = part.shape
    if shape is _LEAF or not value:
        return {}
    if shape is Shape.OBJECT:
        node = _object_fields(merge_schema, merge_schema.parts(part.inner), value, marks=marks)
    elif shape is Shape.MAP:
        node = {
            f"f:{key}": _inner_fields(merge_schema, part, item, marks)
            for key, item in value.items()
        }
    elif shape is Shape.KEYED_LIST:
        inner = merge_schema.parts(part.inner)
        node = {}
        for item in value:
            fields = _object_fields(merge_schema, inner, item, marks=marks)
            fields[SELF] = {}
            node[item_element(part, item)] = fields
    else:
        node = {value_element(item): {} for item in value}
    if marks:
        node[SELF] = {}
    return node


def _inner_fields(merge_schema: MergeSchema, part: Part, item: Any, marks: bool) -> Tree:
    if not part.inner or not isinstance(item, dict) or not item:
        return {}
    node = _object_fields(merge_schema, merge_schema.parts(part.inner), item, marks=marks)
    if marks:
        node[SELF] = {}
    return node


def changes(merge_schema: MergeSchema, type_name: str, old: Map, new: Map) -> tuple[Tree, Tree]:
    """Return the (added or modified, removed) fields between two objects."""
    return _object_changes(merge_schema, merge_schema.parts(type_name), old, new, at_root=True)


def _object_changes(
    merge_schema: MergeSchema, parts: dict[str, Part], old: Map, new: Map, *, at_root: bool
) -> tuple[Tree, Tree]:
    changed: Tree = {}
    removed: Tree = {}
    for name, value in new.items():
        part = parts.get(name)
        if part is None:
            continue
        before = old.get(name)
        if before == value:
            continue
        if before is None and not (at_root and part.is_always):
            if part.shape is _LEAF:
                changed[part.element] = {}
            else:
                changed[part.element] = _value_fields(merge_schema, part, value, marks=True)
            continue
        inner_changed, inner_removed = _value_changes(
            merge_schema, part, before, value, at_root=at_root
        )
        if inner_changed is not None:
            changed[part.element] = inner_changed
        if inner_removed is not None:
            removed[part.element] = inner_removed
    for name, before in old.items():
        part = parts.get(name)
        if part is not None and name not in new:
            removed[part.element] = _value_fields(merge_schema, part, before, marks=True)
    return changed, removed


def _value_changes(
    merge_schema: MergeSchema, part: Part, before: Any, value: Any, *, at_root: bool
) -> tuple[Tree | None, Tree | None]:
    """Return the changed and removed nodes of a value that was present (or always is)."""
    shape = part.shape
    if shape is Shape.LEAF:
        return {}, None
    if not value and before:
        # Emptied: the container itself has changed, all its contents are removed.
        fields = _value_fields(merge_schema, part, before, marks=False)
        return {}, fields or None
    if shape is Shape.OBJECT:
        changed, removed = _object_changes(
            merge_schema,
            merge_schema.parts(part.inner),
            before or {},
            value,
            at_root=at_root and part.is_always,
        )
    elif shape is Shape.MAP:
        changed, removed = _map_changes(merge_schema, part, before or {}, value)
    elif shape is Shape.KEYED_LIST:
        changed, removed = _list_changes(merge_schema, part, before or [], value)
    else:
        was, now = set(map(value_element, before or ())), set(map(value_element, value))
        changed = {element: {} for element in now - was}
        removed = {element: {} for element in was - now}
    return changed or None, removed or None


def _map_changes(
    merge_schema: MergeSchema, part: Part, before: Map, value: Map
) -> tuple[Tree, Tree]:
    changed: Tree = {}
    removed: Tree = {}
    for key, item in value.items():
        was = before.get(key)
        if was == item:
            continue
        element = f"f:{key}"
        if part.inner and isinstance(was, dict) and isinstance(item, dict):
            inner, gone = _object_changes(
                merge_schema, merge_schema.parts(part.inner), was, item, at_root=False
            )
            if inner:
                changed[element] = inner
            if gone:
                removed[element] = gone
        else:
            changed[element] = _inner_fields(merge_schema, part, item, marks=True)
    for key, was in before.items():
        if key not in value:
            removed[f"f:{key}"] = _inner_fields(merge_schema, part, was, marks=True)
    return changed, removed


def _list_changes(
    merge_schema: MergeSchema, part: Part, before: list[Map], value: list[Map]
) -> tuple[Tree, Tree]:
    parts = merge_schema.parts(part.inner)
    was = {item_element(part, item): item for item in before}
    changed: Tree = {}
    removed: Tree = {}
    for item in value:
        element = item_element(part, item)
        old_item = was.pop(element, None)
        if old_item is None:
            fields = _object_fields(merge_schema, parts, item, marks=True)
            fields[SELF] = {}
            changed[element] = fields
        elif old_item != item:
            inner, gone = _object_changes(merge_schema, parts, old_item, item, at_root=False)
            if inner:
                changed[element] = inner
            if gone:
                removed[element] = gone
    for element, old_item in was.items():
        fields = _object_fields(merge_schema, parts, old_item, marks=True)
        fields[SELF] = {}
        removed[element] = fields
    return changed, removed
