"""RuntimeClassQuotas: what pods use of them, counted again."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.quantity import canonical, to_texts
from moorage.api.runtime_group import RuntimeClassQuota, RuntimeClassQuotaStatus
from moorage.apiserver.quota import class_usage
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import After, Loop, Queued, latest
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_ended
from moorage.controllers.requests import status_patch
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.resources import PODS, RUNTIME_CLASS_QUOTAS
from moorage.wire.client.rest import Client

# RuntimeClassQuota controller: writes limits and use into the status of class quotas.
#
# Admission counts up what new pods use. This counts again when a quota changes, when pods end or
# go, some time after admission counted, and every five minutes.

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
        self.run = Loop(
            "runtime class quotas",
            self._reconcile,
            [(self._quotas, self._quota_changed), (self._pods, self._pod_changed)],
            clock,
            owned=[self._quotas],
            resync=(_RESYNC_S, self._all),
            workers=_WORKERS,
        ).run

    def _all(self) -> Iterator[str]:
        return (object_key(quota.metadata) for quota in self._quotas)

    def _quota_changed(
        self, before: RuntimeClassQuota | None, after: RuntimeClassQuota | None
    ) -> Iterator[Queued[str]]:
        if after is None:
            return
        key = object_key(after.metadata)
        if before is None or before.spec != after.spec or _hard(after) != after.status.hard:
            yield key
        elif before.status.used != after.status.used:
            yield After(key, _RECOUNT_S)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[Queued[str]]:
        was_ended = before is not None and is_ended(before)
        if after is None or (is_ended(after) and not was_ended):
            pod = latest(before, after)
            for quota in self._quotas.by_index(NAMESPACE, pod.metadata.namespace):
                yield After(object_key(quota.metadata), _GATHER_S)

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


__all__ = ["RuntimeClassQuotaController"]
