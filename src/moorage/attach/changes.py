"""Changes that an attachment would make, found by a server-side dry run of each object.

Pure but for `plan_changes`: what differs is decided from the server's object before, and the one
that the dry run returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from enum import StrEnum

import msgspec

from moorage.api.errors import NotFoundError
from moorage.api.yaml_text import dump
from moorage.attach.manifests import KINDS
from moorage.attach.manifests.identity import OURS, Obj
from moorage.attach.served_objects import FIELD_MANAGER, ServedObjects, key_of, name_of
from moorage.migrate.text_diff import NO_FILE, unified
from moorage.wire.client.discovery import NotServedError

_UNSHOWN = (
    "managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink",
)  # fmt: skip


class Verb(StrEnum):
    """What happens to an object."""

    CREATE = "create"
    CHANGE = "change"
    KEEP = "keep"
    REMOVE = "remove"


class Change(msgspec.Struct, frozen=True):
    """What happens to one object: as it is, None if it is not there, and as it will be."""

    verb: Verb
    obj: Obj
    before: Obj | None = None
    after: Obj | None = None

    @property
    def diff(self) -> str:
        """The change as a unified diff of YAML; empty for an object that is kept."""
        name = name_of(self.obj)
        return unified(
            name if self.before is not None else NO_FILE,
            name if self.after is not None else NO_FILE,
            _text(self.before),
            _text(self.after),
        )


def change_of(obj: Obj, before: Obj | None, after: Obj) -> Change:
    """Return the changes of an apply, given the server's object before and after it."""
    if before is None:
        return Change(Verb.CREATE, obj, None, after)
    is_same = shown(before) == shown(after)
    return Change(Verb.KEEP if is_same else Verb.CHANGE, obj, before, after)


def stale(present: Sequence[Obj], wanted: Sequence[Obj]) -> Iterator[Change]:
    """Yield the removal of each object that an earlier attachment made and no value asks for."""
    keys = {key_of(obj) for obj in wanted}
    for obj in present:
        if key_of(obj) not in keys and is_attached(obj):
            yield Change(Verb.REMOVE, obj, obj, None)


def is_attached(obj: Obj) -> bool:
    """Return whether `moor attach` wrote an object."""
    return any(
        entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
        for entry in obj["metadata"].get("managedFields") or ()
    )


def shown(obj: Obj) -> Obj:
    """Return an object without its status and what the server keeps for itself."""
    plain = deepcopy({key: value for key, value in obj.items() if key != "status"})
    for key in _UNSHOWN:
        plain["metadata"].pop(key, None)
    return plain


async def plan_changes(served: ServedObjects, wanted: Sequence[Obj]) -> list[Change]:
    """Return the changes of an installation of these objects, in its order; removals are last.

    Objects in a namespace, of a kind, or with a role that the installation makes cannot be tried:
    they are shown as they are sent. Raises StatusError for one that the server refuses,
    NotServedError for a kind that neither it nor the installation has.
    """
    plan = [await _planned(served, obj, wanted) for obj in wanted]
    present = [
        obj
        for api_version, kind in KINDS
        async for obj in served.list(api_version, kind, label_selector=OURS)
    ]
    return plan + list(stale(present, wanted))


async def _planned(served: ServedObjects, obj: Obj, wanted: Sequence[Obj]) -> Change:
    before = await served.get(obj)
    try:
        after = await served.apply(obj, is_dry_run=True)
    except (NotFoundError, NotServedError):
        if not _is_made(obj, wanted):
            raise
        after = obj
    return change_of(obj, before, after)


def _is_made(obj: Obj, wanted: Sequence[Obj]) -> bool:
    """Return whether the namespace of an object, or the role that it binds, is among the wanted.

    A server looks for the role of a binding when the user may not bind any.
    """
    namespace = obj["metadata"].get("namespace", "")
    keys = {key_of(other) for other in wanted}
    if ("Namespace", "", namespace) in keys:
        return True
    role = obj.get("roleRef")
    if role is None:
        return False
    return (role["kind"], namespace if role["kind"] == "Role" else "", role["name"]) in keys


def _text(obj: Obj | None) -> str:
    return "" if obj is None else dump(shown(obj))
