"""Changes of ControllerRevisions, passed on to the controller that owns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.labels import from_object
from moorage.api.workloads import ControllerRevision
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE
from moorage.controllers.loop import latest
from moorage.controllers.ownership import controller_of
from moorage.wire.client.informer import Informer, object_key


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
