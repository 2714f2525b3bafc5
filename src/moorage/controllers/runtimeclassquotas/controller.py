"""RuntimeClassQuota controller: writes limits and use into the status of class quotas.

Admission counts up what new pods use. This counts again when a quota changes, when pods end or go,
some time after admission counted, and every five minutes.
"""

from __future__ import annotations

import asyncio

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.quantity import canonical, to_texts
from moorage.api.runtime_quotas import RuntimeClassQuota, RuntimeClassQuotaStatus
from moorage.apiserver.quota.class_quotas import class_usage
from moorage.controllers.informers import NAMESPACE, Informers, wait_synced
from moorage.controllers.objects import Pod
from moorage.controllers.patches import status_patch
from moorage.controllers.pods import is_ended
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import PODS, RUNTIME_CLASS_QUOTAS
from moorage.wire.client.rest import Client

_WORKERS = 5
_RESYNC_S = 300.0
_RECOUNT_S = 30.0
"""After this time, what admission counted for pods that were refused later is corrected."""

_STORED_S = 0.2
"""How long the API server takes at most from the charge of a pod to its commit."""

_GATHER_S = 0.5
"""Pods that go within this time are counted once."""


class RuntimeClassQuotaController:
    """Watches RuntimeClassQuotas, and pods that end or go."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._pods = informers.pods
        self._clock = clock
        self._quotas: Informer[RuntimeClassQuota] = Informer(
            client,
            RUNTIME_CLASS_QUOTAS,
            clock=clock,
            indexes={NAMESPACE: lambda quota: (quota.metadata.namespace,)},
        )
        self._queue: WorkQueue[str] = WorkQueue("runtime class quotas", clock=clock)
        self._quotas.add_handler(self._quota_changed)
        self._pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Reconcile until cancelled. The server must serve the kind."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._quotas.run())
            await wait_synced(self._quotas, self._pods)
            tasks.create_task(self._queue.run(self._reconcile, workers=_WORKERS))
            tasks.create_task(self._resync())

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(_RESYNC_S)
            for quota in self._quotas:
                self._queue.add(object_key(quota.metadata))

    def _quota_changed(
        self, before: RuntimeClassQuota | None, after: RuntimeClassQuota | None
    ) -> None:
        if after is None:
            return
        key = object_key(after.metadata)
        if before is None or before.spec != after.spec or _hard(after) != after.status.hard:
            self._queue.add(key)
        elif before.status.used != after.status.used:
            self._queue.add_after(key, _RECOUNT_S)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        was_ended = before is not None and is_ended(before)
        if after is None or (is_ended(after) and not was_ended):
            pod = after or before
            assert pod is not None
            for quota in self._quotas.by_index(NAMESPACE, pod.metadata.namespace):
                self._queue.add_after(object_key(quota.metadata), _GATHER_S)

    async def _reconcile(self, key: str) -> float | None:
        quota = self._quotas.get_key(key)
        if quota is None:
            return None
        if quota.status.used:
            # Pods that admission has charged already are stored by then: the list has them.
            await self._clock.sleep(_STORED_S)
        pods = await self._client.list(PODS, quota.metadata.namespace)
        used = class_usage(quota.spec, pods.items, self._clock.now())
        status = RuntimeClassQuotaStatus(hard=_hard(quota), used={**to_texts(used)})
        if status == quota.status:
            return None
        patch = status_patch(quota.metadata, quota.status, status)
        meta = quota.metadata
        try:
            await self._client.patch(
                RUNTIME_CLASS_QUOTAS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return None  # It is gone.
        except ConflictError:
            # Admission charged a pod meanwhile; its change of the quota may have been seen already.
            return _GATHER_S
        return None


def _hard(quota: RuntimeClassQuota) -> dict[str, int | str]:
    return {name: canonical(text) for name, text in quota.spec.hard.items()}
