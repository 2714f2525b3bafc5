"""ResourceQuota controller: writes limits and use into the status of quotas.

Admission counts up what new objects use. This counts again when objects go, when a quota changes,
some time after admission counted, and every five minutes. Source: API docs "Resource Quotas".
"""

from __future__ import annotations

import asyncio
from typing import Any

from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.quantity import canonical, to_texts
from moorage.api.quotas import ResourceQuota, ResourceQuotaStatus
from moorage.apiserver.quota import Amounts, charge_of, used_by
from moorage.apiserver.quota.amounts import masked, parsed
from moorage.controllers.informers import NAMESPACE, Informers, wait_synced
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.patches import status_patch
from moorage.controllers.pods import is_ended
from moorage.controllers.resourcequotas.collections import Collections, counted_resources
from moorage.wire.client.informer import object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import RESOURCE_QUOTAS, Resource
from moorage.wire.client.rest import Client

_RESYNC_S = 300.0
_RECOUNT_S = 30.0
"""After this time, what admission counted for objects that were refused later is corrected."""

_GATHER_S = 0.5
"""Objects that go within this time are counted once."""


class ResourceQuotaController:
    """Watches ResourceQuotas, and learns of objects that go."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._quotas = informers.resource_quotas
        self._pods = informers.pods
        self._clock = clock
        self._collections = Collections(client)
        self._queue: WorkQueue[str] = WorkQueue("resource quotas", clock=clock)
        self._quotas.add_handler(self._quota_changed)
        self._pods.add_handler(self._pod_changed)

    async def run(self, *, workers: int) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._quotas, self._pods)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run(self._reconcile, workers=workers))
            tasks.create_task(self._resync())

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(_RESYNC_S)
            for quota in self._quotas:
                self._queue.add(object_key(quota.metadata))

    def object_removed(self, resource: Resource[Any], namespace: str) -> None:
        """Count again what a namespace uses, which has lost an object."""
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        self._count_again(name, namespace)

    def _quota_changed(self, before: ResourceQuota | None, after: ResourceQuota | None) -> None:
        if after is None:
            return
        key = object_key(after.metadata)
        if before is None or _canonical(after.spec.hard) != after.status.hard:
            self._queue.add(key)
        elif before.status.used != after.status.used:
            self._queue.add_after(key, _RECOUNT_S)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """A pod that ends is charged no more. Its removal is reported by the garbage collector."""
        was_ended = before is not None and is_ended(before)
        if after is not None and is_ended(after) and not was_ended:
            self._count_again(PODS.plural, after.metadata.namespace)

    def _count_again(self, resource: str, namespace: str) -> None:
        for quota in self._quotas.by_index(NAMESPACE, namespace):
            if charge_of(resource).concerned(quota.spec.hard):
                self._queue.add_after(object_key(quota.metadata), _GATHER_S)

    async def _reconcile(self, key: str) -> float | None:
        quota = self._quotas.get_key(key)
        if quota is None:
            return None
        used = masked(
            parsed(quota.status.used) | await self._used(quota), _canonical(quota.spec.hard)
        )
        status = ResourceQuotaStatus(hard=_canonical(quota.spec.hard), used=to_texts(used))
        if status == quota.status:
            return None
        patch = status_patch(quota.metadata, quota.status, status)
        meta = quota.metadata
        try:
            await self._client.patch(
                RESOURCE_QUOTAS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return None  # It is gone.
        return None

    async def _used(self, quota: ResourceQuota) -> Amounts:
        """Count what the objects of the namespace use. Raises StatusError, UnreachableError."""
        spec, namespace = quota.spec, quota.metadata.namespace
        used: Amounts = {}
        for resource in counted_resources(list(spec.hard)):
            charge = charge_of(resource)
            objects = await self._collections.objects(resource, charge, namespace)
            used |= used_by(spec, charge, objects, self._clock.now())
        return used


def _canonical(amounts: dict[str, str]) -> dict[str, str]:
    return {name: canonical(text) for name, text in amounts.items()}
