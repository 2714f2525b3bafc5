"""ControllerRevisions: the numbered templates of StatefulSets and DaemonSets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.labels import from_object
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.workloads import ControllerRevision
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE
from moorage.controllers.ownership import controller_of, controller_reference
from moorage.controllers.requests import locked
from moorage.controllers.templates import is_same_template, template_hash
from moorage.wire.client.informer import Informer, latest, object_key
from moorage.wire.client.resources import CONTROLLER_REVISIONS, Resource
from moorage.wire.client.rest import Client

# Revision history: which revision has the present template, and which may be deleted.
#
# A revision's data is the patch that puts its template back, as `kubectl rollout undo` applies
# it. A template that comes back is found again and gets the highest number. Source: API docs
# "ControllerRevision", `controller/history`.

_DIRECTIVE = "$patch"


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one object, each part in the order of their numbers.

    `current` has the present template, None if no revision has it; `duplicates` are further
    revisions with it, and `old` are those of other templates.
    """

    current: ControllerRevision | None
    duplicates: tuple[ControllerRevision, ...]
    old: tuple[ControllerRevision, ...]


def revision_data(template: Raw) -> Raw:
    """Return the data of a template's revision: the patch that replaces the present template.

    Its keys are sorted, as those of kube-controller-manager and of tools, which compare the bytes.
    """
    patch = {**template, _DIRECTIVE: "replace"}
    return {"spec": {"template": msgspec.to_builtins(patch, order="sorted")}}


def template_of(revision: ControllerRevision) -> Raw:
    """Return the template that the revision restores."""
    template = ((revision.data or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != _DIRECTIVE}


def sort_history(revisions: Iterable[ControllerRevision], template: Raw) -> History:
    """Divide the revisions by whether they have the template; of several the last is current."""
    same: list[ControllerRevision] = []
    old: list[ControllerRevision] = []
    for revision in sorted(revisions, key=_order):
        (same if is_same_template(template_of(revision), template) else old).append(revision)
    current = same.pop() if same else None
    return History(current, tuple(same), tuple(old))


def next_number(revisions: Iterable[ControllerRevision]) -> int:
    """Return the number above those of all revisions."""
    return max((revision.revision for revision in revisions), default=0) + 1


def expired(
    old: Iterable[ControllerRevision], live: Collection[str], limit: int, *, counts_live: bool
) -> list[ControllerRevision]:
    """Return the old revisions beyond the limit, lowest numbers first.

    Those named in `live` are never among them. `counts_live` is whether they use up the limit, as
    they do for DaemonSets but not for StatefulSets.
    """
    ordered = sorted(old, key=_order)
    unused = [revision for revision in ordered if revision.metadata.name not in live]
    surplus = len(ordered if counts_live else unused) - limit
    return unused[: max(0, surplus)] if limit >= 0 else []


def _order(revision: ControllerRevision) -> tuple[int, str, str]:
    meta = revision.metadata
    return revision.revision, meta.creation_timestamp or "", meta.name


# Changes of ControllerRevisions, passed on to the controller that owns them.


class RevisionOwners:
    """The owners, of one kind, of the revisions that change, as keys for a loop."""

    def __init__(self, owners: Informer[Any], expectations: Expectations) -> None:
        self._owners = owners
        self._expectations = expectations

    def revision_changed(
        self, before: ControllerRevision | None, after: ControllerRevision | None
    ) -> Iterator[str]:
        """Lower the expectations of the revision's owner and yield its key."""
        meta = latest(before, after).metadata
        controller = controller_of(meta)
        if controller is None:
            if after is not None:
                yield from self._adopters(after)
            return
        if controller.kind != self._owners.resource.kind:
            return
        owner = self._owners.get(controller.name, meta.namespace)
        if owner is None or owner.metadata.uid != controller.uid:
            return
        key = object_key(owner.metadata)
        if before is None:
            self._expectations.creation_seen(key)
        yield key

    def _adopters(self, orphan: ControllerRevision) -> Iterator[str]:
        for owner in self._owners.by_index(NAMESPACE, orphan.metadata.namespace):
            if from_object(owner.spec.selector).matches(orphan.metadata.labels):
                yield object_key(owner.metadata)


# ControllerRevision requests: creation, renumbering and deletion.
#
# A revision's name is its owner's with a hash of the template. When another template's revision has
# the name, the owner's collision count grows, which changes the hash. Source: `controller/history`.

_PREFIX_LIMIT = 223


@dataclass(frozen=True, slots=True)
class Named:
    """A revision, and the owner's collision count that led to its name."""

    revision: ControllerRevision
    collisions: int


class RevisionRequests:
    """Writes the revisions of the objects of one kind; `hash_label` gets the template's hash."""

    def __init__(self, client: Client, owners: Resource[Any], hash_label: str) -> None:
        self._client = client
        self._owners = owners
        self._hash_label = hash_label

    async def create(self, owner: ObjectMeta, template: Raw, number: int, collisions: int) -> Named:
        """Create the revision of a template, or return it if the owner has it already."""
        while True:
            body = self._body(owner, template, number, collisions)
            try:
                created = await self._client.create(CONTROLLER_REVISIONS, body, owner.namespace)
            except AlreadyExistsError:
                # Our copy may not have it yet, or a namesake of another template is in the way.
                existing = await self._client.get(
                    CONTROLLER_REVISIONS, body["metadata"]["name"], owner.namespace
                )
                if _is_of(existing, owner, template):
                    return Named(existing, collisions)
                collisions += 1
            else:
                return Named(created, collisions)

    async def renumber(self, revision: ControllerRevision, number: int) -> ControllerRevision:
        """Set the revision's number. Returns the revision afterwards.

        Raises ConflictError when it has changed since it was read.
        """
        meta = revision.metadata
        patch = {"metadata": locked(meta), "revision": number}
        return await self._client.patch(CONTROLLER_REVISIONS, meta.name, patch, meta.namespace)

    async def delete(self, revision: ControllerRevision) -> None:
        """Delete the revision; one that is gone already is no error."""
        meta = revision.metadata
        try:
            await self._client.delete(CONTROLLER_REVISIONS, meta.name, meta.namespace, uid=meta.uid)
        except NotFoundError:
            return  # Gone already, as wanted.

    def _body(self, owner: ObjectMeta, template: Raw, number: int, collisions: int) -> Raw:
        hash_ = template_hash(template, collisions)
        labels = (template.get("metadata") or {}).get("labels") or {}
        return {
            "metadata": {
                "name": f"{owner.name[:_PREFIX_LIMIT]}-{hash_}",
                "namespace": owner.namespace,
                "labels": {**labels, self._hash_label: hash_},
                "annotations": dict(owner.annotations),
                "ownerReferences": [controller_reference(self._owners, owner)],
            },
            "data": revision_data(template),
            "revision": number,
        }


def _is_of(revision: ControllerRevision, owner: ObjectMeta, template: Raw) -> bool:
    controller = controller_of(revision.metadata)
    return (
        controller is not None
        and controller.uid == owner.uid
        and is_same_template(template_of(revision), template)
    )
