"""Namespace controller: deletes the content of terminating namespaces, then finalizes them.

Pods are deleted first, so that nothing they need disappears while they run. While content remains,
the namespace is reconciled again when an object in it is gone, at the latest when it should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import MethodNotAllowedError, NotFoundError, StatusError
from moorage.api.meta import ObjectMeta
from moorage.api.namespaces import Namespace
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import Loop
from moorage.controllers.namespaces.conditions import Progress, conditions_after
from moorage.controllers.objects import PODS
from moorage.wire.client.discovery import Discovered, discover
from moorage.wire.client.resources import NAMESPACES, Resource
from moorage.wire.client.rest import Client

FINALIZER = "kubernetes"

_UNKNOWN_WAIT_S = 15


class NamespaceController:
    """Watches namespaces; deletes the content of those that are being deleted."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._namespaces = informers.namespaces
        self._pods = informers.pods
        self._clock = clock
        self._loop: Loop[str] = Loop(
            "namespaces", self._reconcile, [(self._namespaces, self._namespace_changed)], clock
        )
        self.run = self._loop.run

    def _namespace_changed(
        self, before: Namespace | None, after: Namespace | None
    ) -> Iterator[str]:
        del before
        if after is not None and _is_ending(after):
            yield after.metadata.name

    def object_removed(self, resource: Resource[Any], name: str) -> None:
        """Reconcile a namespace that lost an object: it may have been the last one."""
        namespace = self._namespaces.get(name)
        if namespace is None or not _is_ending(namespace):
            return
        is_pod = (resource.group, resource.plural) == ("", PODS.plural)
        # For pods, only the removal of the last one requires a reconcile.
        if not is_pod or not self._pods.by_index(NAMESPACE, name):
            self._loop.add(name)

    async def _reconcile(self, name: str) -> float | None:
        try:
            namespace = await self._client.get(NAMESPACES, name)
        except NotFoundError:
            return None
        if not _is_ending(namespace):
            return None
        progress = Progress()
        wait_s = await self._empty(name, progress)
        await self._report(namespace, progress)
        if progress.is_empty:
            await self._release(namespace)
            return None
        if progress.deletion_failures or progress.discovery_failures:
            raise StatusError(f'namespace "{name}" is not empty: {_failures(progress)}')
        return wait_s // 2 + 1

    async def _empty(self, name: str, progress: Progress) -> int:
        """Delete all content, pods first. Returns the seconds the remaining objects may take."""
        discovered = await discover(self._client)
        progress.discovery_failures = discovered.failures
        wait_s = await self._delete_all(PODS, name, progress, is_collective=True)
        if progress.remaining or progress.deletion_failures:
            return wait_s
        for resource, is_collective in _deletable(discovered):
            wait_s = max(
                wait_s,
                await self._delete_all(resource, name, progress, is_collective=is_collective),
            )
        return wait_s

    async def _delete_all(
        self, resource: Resource[Any], namespace: str, progress: Progress, *, is_collective: bool
    ) -> int:
        try:
            if is_collective:
                await self._client.delete_collection(resource, namespace)
            else:
                await self._delete_each(resource, namespace)
            left = await self._client.list(resource, namespace)
        except (NotFoundError, MethodNotAllowedError):
            return 0  # The resource is not served any more.
        except StatusError as error:
            progress.deletion_failures.append(str(error))
            return 0
        metas: list[ObjectMeta] = [item.metadata for item in left.items]
        progress.left(resource, metas)
        return _wait_s(metas)

    async def _delete_each(self, resource: Resource[Any], namespace: str) -> None:
        for item in (await self._client.list(resource, namespace)).items:
            try:
                await self._client.delete(
                    resource, item.metadata.name, namespace, propagation_policy="Background"
                )
            except NotFoundError:
                continue  # Gone already, as wanted.

    async def _report(self, namespace: Namespace, progress: Progress) -> None:
        before = namespace.status.conditions
        after = conditions_after(before, progress, self._clock.now())
        if after != before:
            await self._client.patch(
                NAMESPACES,
                namespace.metadata.name,
                {"metadata": {"uid": namespace.metadata.uid}, "status": {"conditions": after}},
                subresource="status",
            )

    async def _release(self, namespace: Namespace) -> None:
        """Remove our finalizer from the namespace, if its uid is still the one found empty."""
        name = namespace.metadata.name
        # The whole object goes back, so that metadata no struct of ours knows is kept.
        whole = msgspec.json.decode(await self._client.request("GET", NAMESPACES.path(name=name)))
        if whole["metadata"]["uid"] != namespace.metadata.uid:
            return
        spec = whole.setdefault("spec", {})
        spec["finalizers"] = [
            finalizer for finalizer in spec.get("finalizers", ()) if finalizer != FINALIZER
        ]
        try:
            await self._client.update(NAMESPACES, whole, name, subresource="finalize")
        except NotFoundError:
            return  # Another client was faster.


def _is_ending(namespace: Namespace) -> bool:
    return (
        namespace.metadata.deletion_timestamp is not None and FINALIZER in namespace.spec.finalizers
    )


def _deletable(discovered: Discovered) -> Iterable[tuple[Resource[Any], bool]]:
    """Yield the namespaced resources that can be deleted, and whether by deletecollection."""
    collective = frozenset(discovered.with_verbs("deletecollection"))
    for resource in discovered.with_verbs("delete", "list"):
        if resource.is_namespaced and (resource.group, resource.plural) != ("", PODS.plural):
            yield resource, resource in collective


def _wait_s(metas: Iterable[ObjectMeta]) -> int:
    """Return the seconds the objects may take to terminate, from their grace periods."""
    waits = (
        _UNKNOWN_WAIT_S
        if meta.finalizers or meta.deletion_grace_period_seconds is None
        else meta.deletion_grace_period_seconds
        for meta in metas
    )
    return max(waits, default=0)


def _failures(progress: Progress) -> str:
    return "; ".join(
        [*progress.deletion_failures, *(why for _, why in progress.discovery_failures)]
    )
