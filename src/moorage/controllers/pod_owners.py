"""Changes of pods, passed on to the controller that owns them.

An owner is reconciled when one of its pods changes, or when it might adopt a pod without
controller. Its expectations are lowered by what the informer shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.labels import from_object
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import controller_of
from moorage.controllers.pods import is_deleting
from moorage.wire.client.informer import Informer, object_key


class PodOwners:
    """The owners, of one kind, of the pods that change: `pod_changed` has their keys for a loop."""

    def __init__(self, owners: Informer[Any], expectations: Expectations) -> None:
        self._owners = owners
        self._expectations = expectations

    def pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        """Lower the expectations of the pod's owners and yield their keys."""
        if before is not None and after is not None and after.metadata.uid != before.metadata.uid:
            yield from self.pod_changed(before, None)
            before = None
        old_key = self._controller_key(before) if before is not None else None
        key = self._controller_key(after) if after is not None else None
        if key is not None and after is not None:
            if before is None:
                self._expectations.creation_seen(key)
            if is_deleting(after):
                self._expectations.deletion_seen(key, after.metadata.uid)
        if old_key is not None and before is not None and after is None:
            self._expectations.deletion_seen(old_key, before.metadata.uid)
        for changed_key in {old_key, key} - {None}:
            assert changed_key is not None
            yield changed_key
        if after is not None and controller_of(after.metadata) is None and not is_deleting(after):
            yield from self._adopters(before, after)

    def _adopters(self, before: Pod | None, orphan: Pod) -> Iterator[str]:
        """Yield the owners that might adopt a pod without controller."""
        if before is not None and (
            before.metadata.labels == orphan.metadata.labels
            and controller_of(before.metadata) is None
        ):
            return
        for owner in self._owners.by_index(NAMESPACE, orphan.metadata.namespace):
            if from_object(owner.spec.selector).matches(orphan.metadata.labels):
                yield object_key(owner.metadata)

    def _controller_key(self, pod: Pod) -> str | None:
        controller = controller_of(pod.metadata)
        if controller is None or controller.kind != self._owners.resource.kind:
            return None
        owner = self._owners.get(controller.name, pod.metadata.namespace)
        if owner is None or owner.metadata.uid != controller.uid:
            return None
        return object_key(owner.metadata)
