"""Namespace deletion: all content is deleted before the namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import MethodNotAllowedError, NotFoundError, StatusError
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.names import Namespace
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import Loop
from moorage.controllers.objects import PODS
from moorage.wire.client.discovery import Discovered, discover
from moorage.wire.client.resources import NAMESPACES, Resource
from moorage.wire.client.rest import Client

# Namespace controller: deletes the content of terminating namespaces, then finalizes them.
#
# Pods are deleted first, so that nothing they need disappears while they run. While content
# remains, the namespace is reconciled again when an object in it is gone, at the latest when it
# should be.

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


# Conditions of a terminating namespace: the progress of its deletion. Pure.
#
# Source: core/v1 `NamespaceCondition`; reasons and messages are those of the namespace controller.

_SETTLED = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered", "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions", "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers", "All content-preserving finalizers finished",
    ),
}  # fmt: skip
"""Condition → reason and message while its status is False."""


@dataclass(slots=True)
class Progress:
    """The result of one attempt to delete a namespace's content."""

    discovery_failures: Sequence[tuple[str, str]] = ()
    deletion_failures: list[str] = field(default_factory=list)
    remaining: dict[str, int] = field(default_factory=dict)
    """`plural.group` → number of remaining objects."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """Finalizer → number of remaining objects that have it."""

    def left(self, resource: Resource[Any], metas: Iterable[ObjectMeta]) -> None:
        """Record the remaining objects of a resource and their finalizers."""
        listed = list(metas)
        if listed:
            self.remaining[f"{resource.plural}.{resource.group}"] = len(listed)
        for meta in listed:
            self.finalizers.update(meta.finalizers)

    @property
    def is_empty(self) -> bool:
        """Return whether no content remains and neither discovery nor deletion failed."""
        return not (self.remaining or self.deletion_failures or self.discovery_failures)


def conditions_after(before: Sequence[Raw], progress: Progress, now: datetime) -> tuple[Raw, ...]:
    """Return the updated conditions in their present order.

    A condition whose status does not change keeps its transition time.
    """
    troubles = _troubles(progress)
    by_type = {condition["type"]: condition for condition in before}
    for type_, settled in _SETTLED.items():
        reason, message = troubles.get(type_, settled)
        status = "True" if type_ in troubles else "False"
        was = by_type.get(type_, {})
        is_same = (was.get("status"), was.get("reason"), was.get("message")) == (
            status, reason, message,
        )  # fmt: skip
        if is_same:
            continue
        by_type[type_] = {
            "type": type_,
            "status": status,
            "lastTransitionTime": format_time(now),
            "reason": reason,
            "message": message,
        }
    return tuple(by_type.values())


def _troubles(progress: Progress) -> Mapping[str, tuple[str, str]]:
    troubles: dict[str, tuple[str, str]] = {}
    if progress.discovery_failures:
        shown = ", ".join(f"{group}: {why}" for group, why in sorted(progress.discovery_failures))
        message = (
            f"Discovery failed for some groups, {len(progress.discovery_failures)} failing: "
            f"unable to retrieve the complete list of server APIs: {shown}"
        )
        troubles["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", message)
    if progress.deletion_failures:
        failures = sorted(progress.deletion_failures)
        message = (
            f"Failed to delete all resource types, {len(failures)} remaining: {', '.join(failures)}"
        )
        troubles["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if progress.remaining:
        counts = [
            f"{name} has {count} resource instances"
            for name, count in sorted(progress.remaining.items())
        ]
        message = f"Some resources are remaining: {', '.join(counts)}"
        troubles["NamespaceContentRemaining"] = ("SomeResourcesRemain", message)
    if progress.finalizers:
        counts = [
            f"{name} in {count} resource instances"
            for name, count in sorted(progress.finalizers.items())
        ]
        message = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
        troubles["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return troubles
