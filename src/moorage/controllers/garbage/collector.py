"""Garbage collector: deletes objects whose owners are gone, and finishes cascading deletions.

Keys are objects that need work. A reconcile reads the object live, so a stale cache never deletes
anything; an owner missing from the cache is requested live before it counts as absent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moorage.api.clock import Clock, sleep_unless_set
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectMeta, ObjectReference, OwnerReference
from moorage.controllers.garbage.graph import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    Coordinates,
    Graph,
    Owner,
    Verdict,
    blocks,
    forward,
    judge,
    lost_or_unblocked,
    orphans_dependents,
    waits_for_dependents,
)
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.ownership import without_owners
from moorage.controllers.requests import locked
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.discovery import Discovered, discover
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.recorder import WARNING, EventRecorder
from moorage.wire.client.resources import PartialObject, Resource, read_as
from moorage.wire.client.rest import Client, UnreachableError

_ABSENT_REMEMBERED = 500
_LONGEST_RETRY_S = 1000.0
_DEFINITIONS = "apiextensions.k8s.io"
_REDISCOVERY_S = 300.0
"""Kinds of other API servers come without a definition that could be watched."""

_GATHER_S = 0.5

log = Log(__name__)


class UnknownOwnerKindError(StatusError):
    """An owner's kind is not served, so it is unknown whether the owner is gone."""


class UnownableError(Exception):
    """A cluster-scoped object names a namespaced owner: it is never collected."""


class GarbageCollector:
    """Watches every kind that can be deleted, listed and watched.

    `removed(resource, namespace)` is called for every namespaced object that has gone.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: EventRecorder,
        removed: Callable[[Resource[Any], str], None],
        clock: Clock,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._on_removed = removed
        self._clock = clock
        self._queue: WorkQueue[Coordinates] = WorkQueue(
            "garbage", clock=clock, longest_retry_s=_LONGEST_RETRY_S
        )
        self._absent: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._graph = Graph(informers)
        self._runners: dict[Informer[Any], asyncio.Task[None]] = {}
        self._handled: set[Informer[Any]] = set()
        """The shared informers that have a handler of ours."""
        self._has_news = asyncio.Event()

    async def run(self, *, workers: int) -> None:
        """Collect until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            first = await self._discover(tasks)
            # Once everything is known, an owner that isn't is worth asking for.
            await wait_synced(*first)
            self._listen_to(first)
            tasks.create_task(self._queue.run(self._reconcile, workers=workers))
            tasks.create_task(self._follow_definitions(tasks))

    async def _follow_definitions(self, tasks: asyncio.TaskGroup) -> None:
        """Take up kinds that come and go, until cancelled."""
        while True:
            await sleep_unless_set(self._clock, _REDISCOVERY_S, self._has_news)
            # The changes of one definition, until it is served, come together.
            await self._clock.sleep(_GATHER_S)
            self._has_news.clear()
            if added := await self._discover(tasks):
                self._listen_to(added)
                # Owners of kinds that were not known may have been looked for.
                for resource, meta in self._graph:
                    self._consider(resource, meta)

    async def _discover(self, tasks: asyncio.TaskGroup) -> Sequence[Informer[Any]]:
        """Watch the objects of the kinds that are served now. Returns the new informers."""
        update = self._graph.update(await self._discovered())
        for informer in update.removed:
            if (runner := self._runners.pop(informer, None)) is not None:
                runner.cancel()
        for informer in update.added:
            if self._graph.is_own(informer):
                self._runners[informer] = tasks.create_task(informer.run())
        return update.added

    def _listen_to(self, informers: Iterable[Informer[Any]]) -> None:
        for informer in informers:
            # A shared one goes on while its kind is not served, and comes back with it.
            if informer not in self._handled:
                informer.add_handler(forward(informer.resource, self._changed))
            if not self._graph.is_own(informer):
                self._handled.add(informer)

    async def _discovered(self) -> Discovered:
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        while True:
            try:
                return await discover(self._client)
            except (StatusError, UnreachableError) as error:
                pause_s = backoff.next_s()
                log.warning("discovery failed", error=error, retry_s=round(pause_s, 1))
                await self._clock.sleep(pause_s)

    def _changed(
        self, resource: Resource[Any], before: ObjectMeta | None, after: ObjectMeta | None
    ) -> None:
        if resource.group == _DEFINITIONS:
            self._has_news.set()
        if before is not None and after is not None and before.uid != after.uid:
            self._removed(resource, before)
            before = None
        elif before is not None and after is None:
            self._removed(resource, before)
        if before is not None:
            self._unblock_owners(before, after)
        if after is not None and _is_news(before, after):
            self._consider(resource, after)

    def _removed(self, resource: Resource[Any], meta: ObjectMeta) -> None:
        if meta.namespace:
            self._on_removed(resource, meta.namespace)
        for dependent in self._graph.dependents(meta):
            self._queue.add(dependent)

    def _unblock_owners(self, before: ObjectMeta, after: ObjectMeta | None) -> None:
        for reference in lost_or_unblocked(before, after):
            owner = self._graph.owner(reference, before.namespace)
            resource = self._graph.resource_of(reference)
            if owner is not None and resource is not None and waits_for_dependents(owner):
                self._queue.add(Coordinates.of(resource, owner))

    def _consider(self, resource: Resource[Any], meta: ObjectMeta) -> None:
        if waits_for_dependents(meta):
            for dependent in self._graph.dependents(meta):
                self._queue.add(dependent)
        if waits_for_dependents(meta) or orphans_dependents(meta) or self._misses_owner(meta):
            self._queue.add(Coordinates.of(resource, meta))

    def _misses_owner(self, meta: ObjectMeta) -> bool:
        owners = (
            self._graph.owner(reference, meta.namespace) for reference in meta.owner_references
        )
        return any(owner is None or waits_for_dependents(owner) for owner in owners)

    async def _reconcile(self, item: Coordinates) -> float | None:
        try:
            live = await self._client.get(
                read_as(item.resource, PartialObject), item.name, item.namespace or None
            )
        except NotFoundError:
            return None
        meta = live.metadata
        if meta.uid != item.uid:
            return None
        if orphans_dependents(meta):
            await self._orphan_dependents(item.resource, meta)
        elif waits_for_dependents(meta):
            await self._delete_dependents(item.resource, meta)
        elif meta.deletion_timestamp is None:
            try:
                await self._collect(item.resource, meta)
            except UnownableError:
                return None  # Reported by an event; a retry would not help.
        return None

    async def _collect(self, resource: Resource[Any], meta: ObjectMeta) -> None:
        """Delete an object without solid owners; else drop its dangling and waiting owners."""
        states = {
            reference.uid: await self._state(reference, resource, meta)
            for reference in meta.owner_references
        }
        dependents = self._graph.dependents(meta)
        judgement = judge(meta, states, has_dependents=bool(dependents))
        match judgement.verdict:
            case Verdict.KEEP:
                return
            case Verdict.DROP_OWNERS:
                await self._drop_owners(resource, meta, judgement.uids)
                return
            case Verdict.DELETE_FOREGROUND if self._is_circular(dependents):
                meta = await self._stop_blocking(resource, meta)
            case _:
                pass
        log.info(
            "deleting dependent", resource=resource.plural, namespace=meta.namespace,
            name=meta.name, policy=judgement.policy,
        )  # fmt: skip
        try:
            await self._client.delete(
                resource,
                meta.name,
                meta.namespace or None,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation_policy=judgement.policy,
            )
        except NotFoundError:
            return  # Another client was faster.

    async def _state(
        self, reference: OwnerReference, resource: Resource[Any], meta: ObjectMeta
    ) -> Owner:
        """Return the state of an owner. Raises UnknownOwnerKindError for a kind not served."""
        owner = self._graph.owner(reference, meta.namespace)
        if owner is None:
            if (reference.uid, meta.namespace) in self._absent:
                return Owner.DANGLING
            owner = await self._ask_for(reference, resource, meta)
        if owner is None:
            self._remember_absent(reference.uid, meta.namespace)
            return Owner.DANGLING
        return Owner.WAITING if waits_for_dependents(owner) else Owner.SOLID

    async def _ask_for(
        self, reference: OwnerReference, resource: Resource[Any], meta: ObjectMeta
    ) -> ObjectMeta | None:
        kind = self._graph.resource_of(reference)
        if kind is None:
            raise UnknownOwnerKindError(
                f"owner {reference.kind} {reference.name} of {resource.plural} "
                f"{meta.namespace}/{meta.name}: no such kind in {reference.api_version}"
            )
        if kind.is_namespaced and not meta.namespace:
            self._record_invalid_owner(reference, resource, meta)
            raise UnownableError
        if kind.is_namespaced and self._graph.holds_uid(reference):
            # It lives in another namespace; here it counts as gone.
            self._record_invalid_owner(reference, resource, meta)
        try:
            live = await self._client.get(
                read_as(kind, PartialObject),
                reference.name,
                meta.namespace if kind.is_namespaced else None,
            )
        except NotFoundError:
            return None
        return live.metadata if live.metadata.uid == reference.uid else None

    def _record_invalid_owner(
        self, reference: OwnerReference, resource: Resource[Any], meta: ObjectMeta
    ) -> None:
        about = ObjectReference(
            kind=resource.kind,
            api_version=resource.api_version,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        shown = (
            f"[{reference.api_version}/{reference.kind}, namespace: {meta.namespace}, "
            f"name: {reference.name}, uid: {reference.uid}]"
        )
        message = f'ownerRef {shown} does not exist in namespace "{meta.namespace}"'
        self._recorder.record(about, WARNING, "OwnerRefInvalidNamespace", message)

    def _remember_absent(self, uid: str, namespace: str) -> None:
        # A uid never comes back, so what was gone once is gone for good.
        self._absent[uid, namespace] = None
        while len(self._absent) > _ABSENT_REMEMBERED:
            self._absent.popitem(last=False)

    def _is_circular(self, dependents: list[Coordinates]) -> bool:
        """Return whether a dependent itself waits for dependents: they may form a cycle."""
        metas = (
            self._graph.find(dependent.resource, dependent.namespace, dependent.name)
            for dependent in dependents
        )
        return any(meta is not None and waits_for_dependents(meta) for meta in metas)

    async def _stop_blocking(self, resource: Resource[Any], meta: ObjectMeta) -> ObjectMeta:
        references = [
            {**reference, "blockOwnerDeletion": False}
            for reference in without_owners(meta, uids=())
        ]
        return await self._patch(resource, meta, {"ownerReferences": references})

    async def _delete_dependents(self, resource: Resource[Any], meta: ObjectMeta) -> None:
        """Process a foreground deletion: requeue blocking dependents.

        Removes the finalizer once none is left.
        """
        blocking = [
            other for other in self._graph.dependents(meta) if self._blocks(other, meta.uid)
        ]
        if not blocking:
            await self._remove_finalizer(resource, meta, FOREGROUND_FINALIZER)
            return
        for dependent in blocking:
            metadata = self._graph.find(dependent.resource, dependent.namespace, dependent.name)
            if metadata is not None and not waits_for_dependents(metadata):
                self._queue.add(dependent)

    def _blocks(self, dependent: Coordinates, owner_uid: str) -> bool:
        meta = self._graph.find(dependent.resource, dependent.namespace, dependent.name)
        return meta is not None and blocks(meta, owner_uid)

    async def _orphan_dependents(self, resource: Resource[Any], meta: ObjectMeta) -> None:
        """Process an orphaning deletion: drop the dependents' references, then the finalizer."""
        for dependent in self._graph.dependents(meta):
            metadata = self._graph.find(dependent.resource, dependent.namespace, dependent.name)
            if metadata is not None:
                await self._drop_owners(dependent.resource, metadata, {meta.uid})
        await self._remove_finalizer(resource, meta, ORPHAN_FINALIZER)

    async def _drop_owners(
        self, resource: Resource[Any], meta: ObjectMeta, uids: frozenset[str] | set[str]
    ) -> None:
        try:
            await self._patch(resource, meta, {"ownerReferences": without_owners(meta, uids)})
        except NotFoundError:
            return  # It is gone, and so is the reference.

    async def _remove_finalizer(
        self, resource: Resource[Any], meta: ObjectMeta, finalizer: str
    ) -> None:
        left = [name for name in meta.finalizers if name != finalizer]
        try:
            await self._patch(resource, meta, {"finalizers": left})
        except NotFoundError:
            return  # It is gone already, as wanted.

    async def _patch(
        self, resource: Resource[Any], meta: ObjectMeta, changes: dict[str, Any]
    ) -> ObjectMeta:
        patch = {"metadata": {**locked(meta), **changes}}
        patched = await self._client.patch(
            read_as(resource, PartialObject), meta.name, patch, meta.namespace or None
        )
        return patched.metadata


def _is_news(before: ObjectMeta | None, after: ObjectMeta) -> bool:
    """Return whether a change is relevant here; heartbeats and status writes are not."""
    return before is None or (
        before.owner_references != after.owner_references
        or before.finalizers != after.finalizers
        or before.deletion_timestamp != after.deletion_timestamp
    )
