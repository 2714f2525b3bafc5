"""ControllerRevision requests: creation, renumbering and deletion.

A revision's name is its owner's with a hash of the template. When another template's revision has
the name, the owner's collision count grows, which changes the hash. Source: `controller/history`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.workloads import ControllerRevision
from moorage.controllers.ownership import controller_of, controller_reference
from moorage.controllers.patches import locked
from moorage.controllers.revisions.history import revision_data, template_of
from moorage.controllers.templates import is_same_template, template_hash
from moorage.wire.client.resources import CONTROLLER_REVISIONS, Resource
from moorage.wire.client.rest import Client

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
