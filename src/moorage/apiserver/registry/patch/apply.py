"""Server-side apply: a manager sets the fields in its configuration; others are unchanged.

    live + config ─merge─▶ merged ─conflicts?─▶ ─prune its dropped fields─▶ new object

Source: KEP-555, API docs "Server-Side Apply".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorage.api.errors import Cause, ConflictError
from moorage.apiserver.registry.patch.compare import changes, fields_of
from moorage.apiserver.registry.patch.fieldset import (
    EMPTY,
    SELF,
    Tree,
    difference,
    element_text,
    intersection,
    paths,
    union,
)
from moorage.apiserver.registry.patch.managed import (
    BEFORE_FIRST_APPLY,
    UPDATE,
    Change,
    ManagedFields,
    Manager,
    arranged,
    fields_changed_in,
    owned_fields,
)
from moorage.apiserver.registry.patch.merge_schema import (
    MergeSchema,
    Part,
    Shape,
    item_element,
    value_element,
)

_ENVELOPE = ("apiVersion", "kind")
Map = dict[str, Any]


def merge_configuration(
    merge_schema: MergeSchema, type_name: str, live: Map, configuration: Map
) -> Map:
    """Return an object with the fields of a configuration, both of a type.

    Raises TypedPatchError for a keyed list with an item twice, and for atomic parts.
    """
    parts = merge_schema.parts(type_name)
    stated = {name: value for name, value in configuration.items() if name not in _ENVELOPE}
    try:
        check_items(merge_schema, parts, stated, "")
    except TypedPatchError as error:
        raise TypedPatchError(f"failed to convert patch object to typed object: {error}") from error
    if atomics := list(_atomics(merge_schema, parts, stated, "")):
        raise TypedPatchError(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            + ", ".join(atomics)
        )
    return merge_object(merge_schema, parts, live, stated)


def _atomics(
    merge_schema: MergeSchema, parts: dict[str, Part], obj: Map, path: str
) -> Iterator[str]:
    """Yield the paths of atomic objects, maps and lists."""
    for name, value in obj.items():
        part = parts.get(name)
        if part is None or not isinstance(value, (dict, list)):
            continue
        yield from _atomics_in(merge_schema, part, value, f"{path}.{name}")


def _atomics_in(merge_schema: MergeSchema, part: Part, value: Any, path: str) -> Iterator[str]:
    match part.shape:
        case Shape.LEAF:
            yield path
        case Shape.OBJECT:
            yield from _atomics(merge_schema, merge_schema.parts(part.inner), value, path)
        case Shape.KEYED_LIST:
            inner = merge_schema.parts(part.inner)
            for index, item in enumerate(value):
                yield from _atomics(merge_schema, inner, item, f"{path}[{index}]")


class TypedPatchError(ValueError):
    """The applied configuration does not fit its type; the text starts with the field."""


def apply(
    change: Change, live: Map | None, entries: ManagedFields, config: Map, *, force: bool
) -> tuple[Map, ManagedFields]:
    """Apply `config` for a manager. Returns the new object and its managedFields entries.

    `live` is the present object (None: it is created), `config` the request body, both canonical
    and in the request's version. Raises ConflictError when other managers own fields that would
    change and `force` is off, TypedPatchError when a keyed list has an item twice.
    """
    merge_schema, type_name = change.merge_schema, change.type_name
    check_items(merge_schema, merge_schema.parts(type_name), config, "")
    stated = owned_fields(fields_of(merge_schema, type_name, config), change.ignored)
    if live is None:
        return config, [change.manager.entry(stated, change.now)]
    if not entries:
        entries = _first_entries(change, live)
    merged = merge_object(merge_schema, merge_schema.parts(type_name), live, config)
    before = EMPTY
    others: ManagedFields = []
    for entry in entries:
        if Manager.of(entry).is_applier(change.manager):
            before = entry.get("fieldsV1", EMPTY)
        else:
            others.append(entry)
    changed, _ = changes(merge_schema, type_name, live, merged)
    own_changed = owned_fields(changed, change.ignored)

    def changed_in(api_version: str) -> Tree:
        return fields_changed_in(change, api_version, live, merged, own_changed)

    others = _settle_conflicts(others, changed_in, force=force)
    dropped = difference(before, stated)
    if dropped:
        kept: Tree = stated
        for entry in others:
            kept = union(kept, entry.get("fieldsV1", EMPTY))
        merged = _prune_object(merge_schema, merge_schema.parts(type_name), merged, dropped, kept)
    if stated:
        others.append(_own_entry(change, entries, stated, is_changed=merged != live))
    return merged, arranged(others)


def _own_entry(change: Change, entries: ManagedFields, stated: Tree, *, is_changed: bool) -> Map:
    """Return the applier's entry. Its time is that of the last apply that changed the object."""
    if is_changed:
        return change.manager.entry(stated, change.now)
    earlier = next(
        (entry for entry in entries if Manager.of(entry).is_applier(change.manager)), EMPTY
    )
    return change.manager.entry(stated, earlier.get("time", ""))


def _first_entries(change: Change, live: Map) -> ManagedFields:
    """Return the entry `before-first-apply` for the fields of an object without entries."""
    manager = Manager(BEFORE_FIRST_APPLY, UPDATE, change.manager.api_version)
    fields, _ = changes(change.merge_schema, change.type_name, {}, live)
    return [manager.entry(owned_fields(fields, EMPTY), change.now)]


def _settle_conflicts(
    entries: ManagedFields, changed_in: Callable[[str], Tree], *, force: bool
) -> ManagedFields:
    """Return the entries of other managers, without what an apply takes from them.

    `changed_in` returns the changed fields as a version has them.
    """
    settled: ManagedFields = []
    conflicts: list[tuple[Manager, Tree]] = []
    for entry in entries:
        fields = entry.get("fieldsV1", EMPTY)
        common = intersection(fields, changed_in(entry.get("apiVersion", "")))
        if not common:
            settled.append(entry)
            continue
        conflicts.append((Manager.of(entry), common))
        rest = difference(fields, common)
        if rest:
            settled.append({**entry, "fieldsV1": rest})
    if conflicts and not force:
        raise _conflict(conflicts)
    return settled


def _conflict(conflicts: list[tuple[Manager, Tree]]) -> ConflictError:
    causes: list[Map] = []
    blocks: list[str] = []
    for manager, tree in sorted(conflicts, key=lambda conflict: str(conflict[0])):
        field_paths = list(paths(tree))
        causes += [
            Cause("FieldManagerConflict", f"conflict with {manager}", path).to_object()
            for path in field_paths
        ]
        blocks.append(
            f"conflicts with {manager}:\n" + "\n".join(f"- {path}" for path in field_paths)
        )
    count = len(causes)
    if count == 1:
        manager, tree = conflicts[0]
        text = f"conflict with {manager}: {next(paths(tree))}"
        return ConflictError(f"Apply failed with 1 conflict: {text}", {"causes": causes})
    return ConflictError(
        f"Apply failed with {count} conflicts: " + "\n".join(blocks), {"causes": causes}
    )


def merge_object(merge_schema: MergeSchema, parts: dict[str, Part], live: Map, config: Map) -> Map:
    """Return an object with the fields of a configuration."""
    merged = dict(live)
    for name, value in config.items():
        part = parts.get(name)
        merged[name] = (
            value if part is None else _merge_value(merge_schema, part, live.get(name), value)
        )
    return merged


def _merge_value(merge_schema: MergeSchema, part: Part, live: Any, value: Any) -> Any:
    if not live or part.shape is Shape.LEAF:
        return value
    if not value:
        # An empty object or list names nothing: what it holds already stays.
        return live if isinstance(value, (dict, list)) else value
    match part.shape:
        case Shape.OBJECT:
            return merge_object(merge_schema, merge_schema.parts(part.inner), live, value)
        case Shape.MAP:
            merged = dict(live)
            for key, item in value.items():
                was = live.get(key)
                if part.inner and isinstance(was, dict) and isinstance(item, dict):
                    item = merge_object(merge_schema, merge_schema.parts(part.inner), was, item)
                merged[key] = item
            return merged
        case Shape.KEYED_LIST:
            return _merge_list(merge_schema, part, live, value)
        case _:
            return list({value_element(item): item for item in [*live, *value]}.values())


def _merge_list(
    merge_schema: MergeSchema, part: Part, live: list[Map], value: list[Map]
) -> list[Map]:
    """Merge items in the applied order; those only in the live list keep their place."""
    parts = merge_schema.parts(part.inner)
    stated = {item_element(part, item): item for item in value}
    present = {item_element(part, item): item for item in live}
    place = {element: index for index, element in enumerate(present)}
    order = list(present)
    merged: list[Map] = []
    position = 0
    for element, item in stated.items():
        # A new item comes after the live ones here, an existing one after those it followed.
        end = place[element] + 1 if element in place else _run_end(order, position, stated)
        merged += [present[key] for key in order[position:end] if key not in stated]
        position = max(position, end)
        was = present.get(element)
        merged.append(item if was is None else merge_object(merge_schema, parts, was, item))
    return merged + [present[key] for key in order[position:] if key not in stated]


def _run_end(order: list[str], position: int, stated: Map) -> int:
    """Return the end of the run of live items, from a position on, that are not applied."""
    while position < len(order) and order[position] not in stated:
        position += 1
    return position


def _prune_object(
    merge_schema: MergeSchema, parts: dict[str, Part], obj: Map, dropped: Tree, kept: Tree
) -> Map:
    """Return the object without dropped fields that no other manager owns."""
    pruned = dict(obj)
    for name in obj:
        part = parts.get(name)
        if part is None or part.element not in dropped:
            continue
        node, keep = dropped[part.element], kept.get(part.element)
        value = _prune_value(merge_schema, part, pruned[name], node, keep)
        if value is None:
            del pruned[name]
        else:
            pruned[name] = value
    return pruned


def _prune_value(
    merge_schema: MergeSchema, part: Part, value: Any, node: Tree, keep: Tree | None
) -> Any:
    """Return the rest of a value after pruning, None if it is empty."""
    if part.shape is Shape.LEAF or not value:
        return value if keep is not None and (not keep or SELF in keep) else None
    keep_inside: Tree = keep or EMPTY
    match part.shape:
        case Shape.OBJECT:
            left: Any = _prune_object(
                merge_schema, merge_schema.parts(part.inner), value, node, keep_inside
            )
        case Shape.MAP:
            left = {
                key: item
                for key, item in value.items()
                if f"f:{key}" not in node or f"f:{key}" in keep_inside
            }
        case Shape.KEYED_LIST:
            left = _prune_list(merge_schema, part, value, node, keep_inside)
        case _:
            left = [
                item
                for item in value
                if value_element(item) not in node or value_element(item) in keep_inside
            ]
    return left if left or keep is not None else None


def _prune_list(
    merge_schema: MergeSchema, part: Part, value: list[Map], node: Tree, keep: Tree
) -> list[Map]:
    parts = merge_schema.parts(part.inner)
    left: list[Map] = []
    for item in value:
        element = item_element(part, item)
        if element not in node:
            left.append(item)
        elif element in keep:
            left.append(_prune_object(merge_schema, parts, item, node[element], keep[element]))
        elif SELF not in node[element]:
            left.append(_prune_object(merge_schema, parts, item, node[element], EMPTY))
    return left


def check_items(merge_schema: MergeSchema, parts: dict[str, Part], obj: Map, path: str) -> None:
    """Raise TypedPatchError if a keyed list or set has an item twice."""
    for name, value in obj.items():
        part = parts.get(name)
        if part is None or not value:
            continue
        at = f"{path}.{name}"
        if part.shape is Shape.OBJECT:
            check_items(merge_schema, merge_schema.parts(part.inner), value, at)
        elif part.shape in (Shape.KEYED_LIST, Shape.SET):
            seen: set[str] = set()
            for item in value:
                is_keyed = part.shape is Shape.KEYED_LIST
                element = item_element(part, item) if is_keyed else value_element(item)
                if element in seen:
                    kind = "key" if is_keyed else "value"
                    raise TypedPatchError(
                        f"{at}: duplicate entries for {kind} {element_text(element)}"
                    )
                seen.add(element)
                if is_keyed:
                    inner = merge_schema.parts(part.inner)
                    check_items(merge_schema, inner, item, f"{at}{element_text(element)}")
