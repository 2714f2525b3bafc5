"""Protection of claims: a claim that is deleted stays until no pod on a node uses it.

A pod that is not scheduled does not count: node agents start no pod whose claim is being deleted.
Source: controller `persistentvolumeclaim-protection` of kube-controller-manager.
"""

from __future__ import annotations

from moorage.api.claims.finalizers import CLAIM_PROTECTION
from moorage.api.claims.pod_claims import foreign_claim, pod_claims
from moorage.api.clock import Clock
from moorage.api.persistent_volumes import PersistentVolumeClaim
from moorage.controllers.finalizers import add_finalizer, remove_finalizer
from moorage.controllers.informers import CLAIM, Informers, claim_keys, wait_synced
from moorage.controllers.objects import CLAIMS, PODS, Pod
from moorage.controllers.storage_protection.protection import is_leaving, is_unprotected, needs_work
from moorage.wire.client.informer import object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.rest import Client


def uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether a pod of the claim's namespace keeps the claim, even if the pod has ended."""
    if not pod.spec.node_name:
        return False
    meta = pod.metadata
    return any(
        # The claim of an ephemeral volume goes with its pod, not the other way round.
        not used.is_ephemeral or not (is_shut_down(pod) or foreign_claim(meta, claim))
        for used in pod_claims(meta.name, pod.spec.volumes)
        if used.name == claim.metadata.name
    )


def is_shut_down(pod: Pod) -> bool:
    """Return whether the node agent is done with a pod, or the pod was deleted by force."""
    meta = pod.metadata
    return meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds == 0


class ClaimProtectionController:
    """Watches claims and pods; adds and removes the finalizer of claims."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._claims = informers.claims
        self._pods = informers.pods
        self._queue: WorkQueue[str] = WorkQueue("claim protection", clock=clock)
        self._claims.add_handler(self._claim_changed)
        self._pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._claims, self._pods)
        await self._queue.run(self._reconcile)

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> None:
        del before
        if after is not None and needs_work(after.metadata, CLAIM_PROTECTION):
            self._queue.add(object_key(after.metadata))

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Queue the claims that wait for a pod; another pod of its name may have followed it."""
        for pod in (before, after):
            for key in claim_keys(pod) if pod is not None else ():
                claim = self._claims.get_key(key)
                if claim is not None and is_leaving(claim.metadata, CLAIM_PROTECTION):
                    self._queue.add(key)

    async def _reconcile(self, key: str) -> float | None:
        claim = self._claims.get_key(key)
        if claim is None:
            return None
        meta = claim.metadata
        if is_unprotected(meta, CLAIM_PROTECTION):
            await add_finalizer(self._client, CLAIMS, meta, CLAIM_PROTECTION)
        elif is_leaving(meta, CLAIM_PROTECTION) and not await self._is_used(key, claim):
            await remove_finalizer(self._client, CLAIMS, meta, CLAIM_PROTECTION)
        return None

    async def _is_used(self, key: str, claim: PersistentVolumeClaim) -> bool:
        if any(uses(pod, claim) for pod in self._pods.by_index(CLAIM, key)):
            return True
        # A pod may have come that the copy does not have yet.
        listed = await self._client.list(PODS, claim.metadata.namespace)
        return any(uses(pod, claim) for pod in listed.items)
