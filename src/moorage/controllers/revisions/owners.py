"""Changes of ControllerRevisions, passed on to the controller that owns them."""

from __future__ import annotations

from typing import Any

from moorage.api.labels import from_object
from moorage.api.workloads import ControllerRevision
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE
from moorage.controllers.ownership import controller_of
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.queue import WorkQueue


class RevisionOwners:
    """Queues the owners, of one kind, of the revisions that change."""

    def __init__(
        self, owners: Informer[Any], expectations: Expectations, queue: WorkQueue[str]
    ) -> None:
        self._owners = owners
        self._expectations = expectations
        self._queue = queue

    def revision_changed(
        self, before: ControllerRevision | None, after: ControllerRevision | None
    ) -> None:
        """Lower the expectations of the revision's owner and queue it."""
        either = after or before
        assert either is not None
        meta = either.metadata
        controller = controller_of(meta)
        if controller is None:
            if after is not None:
                self._enqueue_adopters(after)
            return
        if controller.kind != self._owners.resource.kind:
            return
        owner = self._owners.get(controller.name, meta.namespace)
        if owner is None or owner.metadata.uid != controller.uid:
            return
        key = object_key(owner.metadata)
        if before is None:
            self._expectations.creation_seen(key)
        self._queue.add(key)

    def _enqueue_adopters(self, orphan: ControllerRevision) -> None:
        for owner in self._owners.by_index(NAMESPACE, orphan.metadata.namespace):
            if from_object(owner.spec.selector).matches(orphan.metadata.labels):
                self._queue.add(object_key(owner.metadata))
