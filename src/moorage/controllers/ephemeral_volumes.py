"""Ephemeral volumes: the claims that pods bring along, made from the template in the pod.

A claim is named after pod and volume, owned by the pod, and goes with it. Source: KEP-1698,
controller `ephemeral-volume` of kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import quantity
from moorage.api.claims.pod_claims import PodClaim, foreign_claim, pod_claims
from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, NotFoundError, StatusError
from moorage.api.meta import Raw
from moorage.api.persistent_volumes import PersistentVolumeClaim
from moorage.controllers.informers import CLAIM, Informers
from moorage.controllers.loop import Loop
from moorage.controllers.objects import CLAIMS, PODS, Pod
from moorage.controllers.ownership import controller_reference
from moorage.controllers.requests import is_namespace_ending
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import PODS as FULL_PODS
from moorage.wire.client.rest import Client

# Expansion of claims: the event that says who is to make a volume larger.
#
# No kind of volume is expanded here; a driver's own resizer may do it. Source: controller
# `persistentvolume-expander` of kube-controller-manager.

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


_FAILED = "FailedBinding"


def claims_to_make(pod: Pod) -> tuple[PodClaim, ...]:
    """Return the claims of a pod's ephemeral volumes; none for a pod that is being deleted."""
    if pod.metadata.deletion_timestamp is not None:
        return ()
    claims = pod_claims(pod.metadata.name, pod.spec.volumes)
    return tuple(claim for claim in claims if claim.is_ephemeral)


def claim_from_template(pod: Pod, claim: PodClaim, template: Raw) -> dict[str, Any]:
    """Return the new claim, as JSON: labels, annotations and specification of the template."""
    own = template.get("metadata", {})
    meta = {field: own[field] for field in ("labels", "annotations") if field in own}
    meta |= {
        "name": claim.name,
        "namespace": pod.metadata.namespace,
        "ownerReferences": [controller_reference(PODS, pod.metadata)],
    }
    return {"metadata": meta, "spec": template.get("spec", {})}


class EphemeralVolumeController:
    """Watches pods and claims; makes the claims of ephemeral volumes, and again if they go."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._pods = informers.pods
        self._claims = informers.claims
        self._recorder = recorder
        self.run = Loop(
            "ephemeral volumes",
            self._reconcile,
            [(self._pods, self._pod_changed), (self._claims, self._claim_changed)],
            clock,
        ).run

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        """Yield the key of a new pod; what a pod claims never changes."""
        is_new = before is None or after is None or before.metadata.uid != after.metadata.uid
        if after is not None and is_new and claims_to_make(after):
            yield object_key(after.metadata)

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> Iterator[str]:
        """Yield the pods of a claim that came or went: another's may be in the way."""
        if before is not None and after is not None:
            return
        claim = latest(before, after)
        for pod in self._pods.by_index(CLAIM, object_key(claim.metadata)):
            if claims_to_make(pod):
                yield object_key(pod.metadata)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get_key(key)
        if pod is None:
            return None
        missing: list[PodClaim] = []
        for claim in claims_to_make(pod):
            present = self._claims.get(claim.name, pod.metadata.namespace)
            if present is None:
                missing.append(claim)
            elif why := foreign_claim(pod.metadata, present):
                self._report(pod, claim, why)
        if missing:
            await self._make(pod, missing)
        return None

    async def _make(self, pod: Pod, claims: list[PodClaim]) -> None:
        """Make claims from the templates, which the copy of the pod leaves out."""
        meta = pod.metadata
        try:
            full = await self._client.get(FULL_PODS, meta.name, meta.namespace)
        except NotFoundError:
            return
        if full.metadata.uid != meta.uid or full.metadata.deletion_timestamp is not None:
            return
        templates = {
            volume.name: volume.ephemeral.volume_claim_template or {}
            for volume in full.spec.volumes
            if volume.ephemeral is not None
        }
        for claim in claims:
            body = claim_from_template(pod, claim, templates.get(claim.volume, {}))
            try:
                await self._client.create(CLAIMS, body, meta.namespace)
            except AlreadyExistsError:
                continue  # The copy will have it, and bring the pod here once more.
            except StatusError as error:
                if is_namespace_ending(error):
                    return
                self._report(pod, claim, f"create PVC {claim.name}: {error}")
                raise

    def _report(self, pod: Pod, claim: PodClaim, why: str) -> None:
        message = f"ephemeral volume {claim.volume}: {why}"
        self._recorder.record(reference(PODS, pod), WARNING, _FAILED, message)
