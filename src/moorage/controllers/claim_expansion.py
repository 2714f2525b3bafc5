"""Expansion of claims: the event that says who is to make a volume larger.

No kind of volume is expanded here; a driver's own resizer may do it. Source: controller
`persistentvolume-expander` of kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import quantity
from moorage.api.clock import Clock
from moorage.api.persistent_volumes import PersistentVolumeClaim
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop
from moorage.controllers.objects import CLAIMS
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import NORMAL, EventRecorder, reference

_REASON = "ExternalExpanding"
_MESSAGE = "waiting for an external controller to expand this PVC"
_STORAGE = "storage"


def wanted_size(claim: PersistentVolumeClaim | None) -> quantity.Quantity:
    """Return the size that a claim asks for; 0 without one."""
    requests = claim.spec.resources.requests if claim is not None else {}
    return quantity.parse(requests.get(_STORAGE, "0"))


def is_too_small(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim is bound to a volume that is smaller than it asks for."""
    capacity = quantity.parse(claim.status.capacity.get(_STORAGE, "0"))
    return claim.status.phase == "Bound" and capacity < wanted_size(claim)


def claim_expansion(informers: Informers, recorder: EventRecorder, clock: Clock) -> Loop[str]:
    """Return the loop that records an event about claims that have grown."""
    claims, volumes = informers.claims, informers.volumes

    def grown(
        before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> Iterator[str]:
        has_grown = wanted_size(before) < wanted_size(after)
        if after is not None and has_grown and is_too_small(after):
            yield object_key(after.metadata)

    async def reconcile(key: str) -> None:
        claim = claims.get_key(key)
        if claim is None or not is_too_small(claim):
            return
        volume = volumes.get(claim.spec.volume_name)
        holder = volume.spec.claim_ref if volume is not None else None
        if holder is not None and holder.uid == claim.metadata.uid:
            recorder.record(reference(CLAIMS, claim), NORMAL, _REASON, _MESSAGE)

    return Loop("claim expansion", reconcile, [(claims, grown), (volumes, None)], clock)
