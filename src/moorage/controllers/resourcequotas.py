"""ResourceQuotas: what is used of them, counted again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from moorage.api.clock import Clock
from moorage.api.errors import ForbiddenError, MethodNotAllowedError, NotFoundError
from moorage.api.quantity import canonical, to_texts
from moorage.api.quotas import ResourceQuota, ResourceQuotaStatus
from moorage.apiserver.quota import Amounts, Charge, charge_of, masked, parsed, used_by
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.pods import is_ended
from moorage.controllers.requests import status_patch
from moorage.wire.client.discovery import discover
from moorage.wire.client.informer import object_key
from moorage.wire.client.resources import RESOURCE_QUOTAS, Resource
from moorage.wire.client.rest import Client

# ResourceQuota controller: writes limits and use into the status of quotas.
#
# Admission counts up what new objects use. This counts again when objects go, when a quota changes,
# some time after admission counted, and every five minutes. Source: API docs "Resource Quotas".

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
        self._loop: Loop[str] = Loop(
            "resource quotas",
            self._reconcile,
            [(self._quotas, self._quota_changed), (self._pods, self._pod_changed)],
            clock,
            resync=(_RESYNC_S, self._all),
        )
        self.run = self._loop.run

    def _all(self) -> Iterator[str]:
        return (object_key(quota.metadata) for quota in self._quotas)

    def object_removed(self, resource: Resource[Any], namespace: str) -> None:
        """Count the usage of a namespace again, which has lost an object."""
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        self._loop.add(*self._count_again(name, namespace))

    def _quota_changed(
        self, before: ResourceQuota | None, after: ResourceQuota | None
    ) -> Iterator[Queued[str]]:
        if after is None:
            return
        key = object_key(after.metadata)
        if before is None or _canonical(after.spec.hard) != after.status.hard:
            yield key
        elif before.status.used != after.status.used:
            yield After(key, _RECOUNT_S)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[Queued[str]]:
        """An ended pod is no longer charged. The garbage collector reports its removal."""
        was_ended = before is not None and is_ended(before)
        if after is not None and is_ended(after) and not was_ended:
            yield from self._count_again(PODS.plural, after.metadata.namespace)

    def _count_again(self, resource: str, namespace: str) -> Iterator[Queued[str]]:
        for quota in self._quotas.by_index(NAMESPACE, namespace):
            if charge_of(resource).concerned(quota.spec.hard):
                yield After(object_key(quota.metadata), _GATHER_S)

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
        """Count the usage by the namespace's objects. Raises StatusError, UnreachableError."""
        spec, namespace = quota.spec, quota.metadata.namespace
        used: Amounts = {}
        for resource in counted_resources(list(spec.hard)):
            charge = charge_of(resource)
            objects = await self._collections.objects(resource, charge, namespace)
            used |= used_by(spec, charge, objects, self._clock.now())
        return used


def _canonical(amounts: dict[str, str]) -> dict[str, str]:
    return {name: canonical(text) for name, text in amounts.items()}


# Collections: the objects that a quota counts, listed from the API.
#
# The controllers' copies leave out what is charged, so these are read whole, of one namespace.

_COUNT = "count/"
_BY_NAME = ("configmaps", "replicationcontrollers", "resourcequotas", "secrets")
_CHARGED = ("pods", "services", "persistentvolumeclaims")


def counted_resources(names: Sequence[str]) -> list[str]:
    """Return the qualified names of the resources that a quota on these resources is about."""
    found = [resource for resource in _CHARGED if charge_of(resource).concerned(names)]
    for name in names:
        resource = name.removeprefix(_COUNT)
        if (name.startswith(_COUNT) or name in _BY_NAME) and resource not in found:
            found.append(resource)
    return found


class Collections:
    """Lists the objects of resources, which it finds by discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources: dict[str, Resource[Any]] = {}

    async def objects(self, resource: str, charge: Charge, namespace: str) -> Sequence[Any]:
        """Return the objects of a namespace; none of a resource that is not served.

        Raises StatusError and UnreachableError.
        """
        found = await self._find(resource)
        if found is None:
            return ()
        try:
            listed = await self._client.list(replace(found, type=charge.type), namespace)
        except (NotFoundError, MethodNotAllowedError, ForbiddenError):
            # Its definition is gone, or it is not stored.
            del self._resources[resource]
            return ()
        return listed.items

    async def _find(self, resource: str) -> Resource[Any] | None:
        if resource not in self._resources:
            discovered = await discover(self._client)
            self._resources = {
                f"{one.plural}.{one.group}" if one.group else one.plural: one
                for one in discovered.with_verbs("list")
                if one.is_namespaced
            }
        return self._resources.get(resource)
