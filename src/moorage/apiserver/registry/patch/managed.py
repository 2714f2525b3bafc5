"""Managed fields (`metadata.managedFields`): updated on creates, updates and patches.

An entry belongs to (manager, operation, apiVersion, subresource). Entries of other API versions are
updated by comparing the objects in that version. Source: KEP-555, API docs "Server-Side Apply".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from moorage.apiserver.registry.patch.compare import changes
from moorage.apiserver.registry.patch.fieldset import (
    EMPTY,
    Tree,
    difference,
    in_order,
    union,
    without_subtrees,
)
from moorage.apiserver.registry.patch.merge_schema import MergeSchema

_MOST_REMEMBERED = 256
_MOST_BYTES = 2048
_METADATA = "metadata"
APPLY = "Apply"
UPDATE = "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT_CHANGES = "ancient-changes"
_FIELDS_TYPE = "FieldsV1"
_MAX_UPDATERS = 10
_encode = msgspec.json.encode


class CreatedFields:
    """Returns the entries of new objects; remembers the fields of 256 times 2 KiB of JSON at most.

    Trees are shared between objects; they are never changed in place.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, bytes], Tree] = {}

    def __len__(self) -> int:
        """Return how many objects' fields are remembered."""
        return len(self._known)

    def forget(self) -> None:
        """Forget all: a type has changed."""
        self._known.clear()

    def entries(self, change: Change, obj: dict[str, Any]) -> ManagedFields:
        """Return the entries of a new object, which has no managedFields, in upstream's order."""
        rest = {name: value for name, value in obj.items() if name != _METADATA}
        fields = dict(self._of_rest(change, rest))
        if _METADATA in obj:
            fields |= in_order(_fields(change, {_METADATA: obj[_METADATA]}))
        if not fields:
            return []
        return [change.manager.entry(dict(sorted(fields.items())), change.now)]

    def _of_rest(self, change: Change, rest: dict[str, Any]) -> Tree:
        if not rest:
            return EMPTY
        key = (change.type_name, bool(change.ignored), _encode(rest))
        fields = self._known.get(key)
        if fields is None:
            fields = in_order(_fields(change, rest))
            if len(key[2]) <= _MOST_BYTES:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[key] = fields
        return fields


def _fields(change: Change, obj: dict[str, Any]) -> Tree:
    changed, _ = changes(change.merge_schema, change.type_name, {}, obj)
    return owned_fields(changed, change.ignored)


Map = dict[str, Any]
Entry = dict[str, Any]
ManagedFields = list[Entry]

SYSTEM_FIELDS: Tree = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        f"f:{name}": {}
        for name in ("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
                     "generation", "managedFields", "resourceVersion")
    },
}  # fmt: skip
"""Fields without an owner: the server sets them."""


class Manager(msgspec.Struct, frozen=True):
    """Key of an entry: manager, operation, apiVersion and subresource."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @classmethod
    def of(cls, entry: Entry) -> Manager:
        return cls(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )

    def is_applier(self, other: Manager) -> bool:
        """Return whether both are one manager that applies, which may come by any version."""
        return replace(self, api_version="") == replace(other, api_version="")

    def entry(self, fields: Tree, time: str) -> Entry:
        """Return the managedFields entry of this manager for a set of fields."""
        entry: Entry = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": _FIELDS_TYPE,
            "fieldsV1": fields,
        }
        if not time:
            del entry["time"]
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            text += f" using {self.api_version}"
        return text


class Version(msgspec.Struct, frozen=True):
    """The type of a version, and the conversion from the request's version to it."""

    type_name: str
    convert: Callable[[Map], Map] | None = None


Versions = Callable[[str], Version | None]
"""apiVersion → version, None for one that is not served (its entries are dropped)."""


class Change(msgspec.Struct, frozen=True):
    """One write, as input of the trackers. The endpoint does not write `ignored` fields."""

    merge_schema: MergeSchema
    type_name: str
    manager: Manager
    now: str
    ignored: Tree
    versions: Versions


def track_update(change: Change, old: Map, new: Map, entries: ManagedFields) -> ManagedFields:
    """Return the entries after a write other than apply: the writer owns what it changed."""
    changed, removed = _difference(change, change.type_name, old, new)
    if not changed and not removed:
        return entries
    kept: ManagedFields = []
    own: Tree = EMPTY
    own_time = change.now
    for entry in entries:
        manager = Manager.of(entry)
        if manager == change.manager:
            own, own_time = entry.get("fieldsV1", EMPTY), entry.get("time", change.now)
            continue
        lost = _lost_in(change, manager.api_version, old, new, changed, removed)
        if lost is not None:
            _keep(kept, entry, difference(entry.get("fieldsV1", EMPTY), lost))
    fields = difference(union(own, changed), removed)
    if fields:
        time = own_time if fields == own else change.now
        kept.append(change.manager.entry(fields, time))
    return arranged(folded(kept))


def _lost_in(
    change: Change, api_version: str, old: Map, new: Map, changed: Tree, removed: Tree
) -> Tree | None:
    """Return the fields other managers lose, in their entry's version; None if not served."""
    version = change.versions(api_version)
    if version is None:
        return None
    if version.convert is not None:
        changed, removed = _difference(
            change, version.type_name, version.convert(old), version.convert(new)
        )
    return union(changed, removed)


def fields_changed_in(change: Change, api_version: str, old: Map, new: Map, changed: Tree) -> Tree:
    """Return the fields that a write changes, as a version has them: none of one not served.

    `changed` are those of the request's version.
    """
    version = change.versions(api_version)
    if version is None:
        return EMPTY
    if version.convert is None:
        return changed
    fields, _ = _difference(change, version.type_name, version.convert(old), version.convert(new))
    return fields


def _difference(change: Change, type_name: str, old: Map, new: Map) -> tuple[Tree, Tree]:
    changed, removed = changes(change.merge_schema, type_name, old, new)
    return owned_fields(changed, change.ignored), owned_fields(removed, change.ignored)


def owned_fields(tree: Tree, ignored: Tree) -> Tree:
    """Return a tree without system fields and the fields this endpoint does not write."""
    tree = without_subtrees(tree, SYSTEM_FIELDS)
    return without_subtrees(tree, ignored) if ignored else tree


def _keep(kept: ManagedFields, entry: Entry, fields: Tree) -> None:
    if fields:
        kept.append(entry if fields is entry.get("fieldsV1") else {**entry, "fieldsV1": fields})


def arranged(entries: ManagedFields) -> ManagedFields:
    """Return entries in API order: applies first, then by age, then by name."""
    return sorted(
        entries,
        key=lambda entry: (
            entry.get("operation", ""),
            entry.get("time", ""),
            entry.get("manager", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        ),
    )


def folded(entries: ManagedFields) -> ManagedFields:
    """Limit updaters to ten: the oldest are merged into one `ancient-changes` per version."""
    updaters = [entry for entry in entries if entry.get("operation") == UPDATE]
    surplus = len(updaters) - _MAX_UPDATERS
    if surplus <= 0:
        return entries
    updaters.sort(key=lambda entry: entry.get("time", ""))
    buckets: dict[str, Entry] = {}
    gone: list[int] = []
    for entry in updaters:
        if surplus <= 0:
            break
        api_version = entry.get("apiVersion", "")
        bucket = buckets.get(api_version)
        if bucket is None:
            manager = Manager(ANCIENT_CHANGES, UPDATE, api_version)
            buckets[api_version] = manager.entry(entry["fieldsV1"], entry.get("time", ""))
        else:
            bucket["fieldsV1"] = union(bucket["fieldsV1"], entry["fieldsV1"])
            bucket["time"] = entry.get("time", "")
            surplus -= 1
        gone.append(id(entry))
    return [entry for entry in entries if id(entry) not in gone] + list(buckets.values())


def is_same_but_for_times(left: Sequence[Entry], right: Sequence[Entry]) -> bool:
    """Return whether two lists of entries are equal, times aside."""
    return list(map(_without_time, left)) == list(map(_without_time, right))


def _without_time(entry: Entry) -> tuple[Manager, Any]:
    return Manager.of(entry), entry.get("fieldsV1")
