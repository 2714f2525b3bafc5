"""Field ownership: maintains `metadata.managedFields` for the generic path.

Collects the arguments of the trackers: the object in the version of the request, the manager's
name, the fields an endpoint may write. Objects without entries are not tracked until an apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moorage.api.clock import Clock, format_time
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.patch import (
    Change,
    CreatedFields,
    ManagedFields,
    Manager,
    MergeSchema,
    Version,
    apply,
    is_same_but_for_times,
    track_update,
)
from moorage.apiserver.registry.patch.fieldset import EMPTY, Tree, in_order, is_tree
from moorage.apiserver.registry.patch.managed import APPLY, UPDATE
from moorage.apiserver.registry.request import Request

_STATUS: Tree = {"f:status": {}}


class Ownership:
    """Tracks the objects of one schema."""

    def __init__(self, codec: Codec, clock: Clock) -> None:
        self._codec = codec
        self._clock = clock
        self.merge_schema = MergeSchema(codec.schema)
        self._created = CreatedFields()

    def forget(self, type_names: Iterable[str]) -> None:
        """Forget merge types that are removed from the schema or replaced in it."""
        self.merge_schema.forget(type_names)
        self._created.forget()

    def on_create(self, request: Request, kind: Kind, served: Served, obj: Obj) -> None:
        """Record the creator, in place. `obj` is in the storage version."""
        change = self._change(request, kind, served, UPDATE, "")
        entries = self._created.entries(change, self._codec.from_storage(served, obj))
        if entries:
            obj["metadata"]["managedFields"] = entries

    def on_update(
        self, request: Request, kind: Kind, served: Served, new: Obj, old: Obj, subresource: str
    ) -> None:
        """Record the changed fields for the manager, in place."""
        base = self._base_entries(new, old)
        if not base:
            _set_entries(new, [])
            return
        change = self._change(request, kind, served, UPDATE, subresource)
        entries = track_update(
            change,
            self._codec.from_storage(served, _without_entries(old)),
            self._codec.from_storage(served, _without_entries(new)),
            base,
        )
        _set_entries(new, entries)

    def apply(
        self,
        request: Request,
        kind: Kind,
        served: Served,
        live: Obj | None,
        config: Obj,
        subresource: str,
        *,
        force: bool,
    ) -> Obj:
        """Return the object after an apply, in the request's version, with its new entries.

        `live` is in the storage version, `config` in the request's.
        """
        change = self._change(request, kind, served, APPLY, subresource)
        entries: ManagedFields = [] if live is None else _entries_of(live)
        versioned = (
            None if live is None else self._codec.from_storage(served, _without_entries(live))
        )
        merged, entries = apply(change, versioned, entries, config, force=force)
        merged = {**merged, "metadata": dict(merged["metadata"])}
        _set_entries(merged, entries)
        return merged

    def is_same(self, new: Obj, old: Obj) -> bool:
        """Return whether an update changes neither content nor, times aside, ownership."""
        if not is_same_but_for_times(_entries_of(new), _entries_of(old)):
            return False
        return _comparable(new) == _comparable(old)

    def _base_entries(self, new: Obj, old: Obj) -> ManagedFields:
        """Return the base entries: the client's if it sent any, else the object's.

        A single empty entry from the client resets them all.
        """
        sent = new["metadata"].get("managedFields")
        if sent is None:
            return _entries_of(old)
        if sent == [{}]:
            return []
        present = _entries_of(old)
        # Entries that do not decode count as not sent, as upstream.
        return list(sent) if sent == present or all(map(_is_readable, sent)) else present

    def _change(
        self, request: Request, kind: Kind, served: Served, operation: str, subresource: str
    ) -> Change:
        return Change(
            merge_schema=self.merge_schema,
            type_name=served.type,
            manager=Manager(request.manager, operation, served.api_version, subresource),
            now=format_time(self._clock.now()),
            ignored=_ignored(kind, subresource),
            versions=self._versions(kind, served),
        )

    def _versions(self, kind: Kind, acting: Served) -> Callable[[str], Version | None]:
        known: dict[str, Version | None] = {}

        def version(api_version: str) -> Version | None:
            if api_version not in known:
                known[api_version] = next(
                    (
                        Version(served.type, self._converter(acting, served))
                        for served in kind.served
                        if served.api_version == api_version
                    ),
                    None,
                )
            return known[api_version]

        return version

    def _converter(self, acting: Served, other: Served) -> Callable[[Obj], Obj] | None:
        if acting is other or (acting.to_storage is None and other.from_storage is None):
            return None

        # Several entries may have the version, and a conversion may ask a webhook. The object is
        # kept with its conversion, so that no other can take its identity.
        known: dict[int, tuple[Obj, Obj]] = {}

        def convert(obj: Obj) -> Obj:
            if id(obj) not in known:
                stored = obj if acting.to_storage is None else acting.to_storage(obj)
                known[id(obj)] = obj, self._codec.from_storage(other, stored)
            return known[id(obj)][1]

        return convert


def _is_readable(entry: Obj) -> bool:
    return is_tree(entry.get("fieldsV1", EMPTY))


def _ignored(kind: Kind, subresource: str) -> Tree:
    """Return the fields an endpoint does not write: the status, for the main endpoint."""
    return _STATUS if kind.has_status and not subresource else EMPTY


def _entries_of(obj: Obj) -> ManagedFields:
    entries: ManagedFields = obj["metadata"].get("managedFields", [])
    return entries


def _set_entries(obj: Obj, entries: ManagedFields) -> None:
    if entries:
        obj["metadata"]["managedFields"] = [
            {**entry, "fieldsV1": in_order(entry["fieldsV1"])} if "fieldsV1" in entry else entry
            for entry in entries
        ]
    else:
        obj["metadata"].pop("managedFields", None)


def _without_entries(obj: Obj) -> Obj:
    return {**obj, "metadata": _without(obj["metadata"], "managedFields")}


def _comparable(obj: Obj) -> Obj:
    return {**obj, "metadata": _without(obj["metadata"], "managedFields", "resourceVersion")}


def _without(metadata: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in fields}
