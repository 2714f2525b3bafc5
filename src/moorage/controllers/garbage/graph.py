"""Dependency graph of objects, read from the informers.

Nothing is copied: kinds that other controllers watch are looked up in their informers, all others
in informers of metadata only. Events are left out, as nothing owns them and there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.controllers.informers import OWNER, Informers
from moorage.wire.client.discovery import SECOND_HOMES, Discovered
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import meta_of

# Owner references: the garbage collector's verdict on a dependent. Pure.
#
# Source: API docs "Garbage Collection", "Owners and Dependents"; KEP-1355 for cross-namespace
# owners.

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"

FOREGROUND = "Foreground"
BACKGROUND = "Background"
ORPHAN = "Orphan"


class Owner(Enum):
    """The state of an owner."""

    SOLID = "there"
    DANGLING = "gone"
    WAITING = "being deleted, after its dependents"


class Verdict(Enum):
    """The action on a dependent."""

    KEEP = "keep"
    DROP_OWNERS = "take out the owners that are gone or leaving"
    DELETE = "delete"
    DELETE_FOREGROUND = "delete, after its own dependents"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, with the uids for DROP_OWNERS and the propagation policy for DELETE."""

    verdict: Verdict
    uids: frozenset[str] = frozenset()
    policy: str = BACKGROUND


def waits_for_dependents(meta: ObjectMeta) -> bool:
    """Return whether a foreground deletion of the object is in progress."""
    return meta.deletion_timestamp is not None and FOREGROUND_FINALIZER in meta.finalizers


def orphans_dependents(meta: ObjectMeta) -> bool:
    """Return whether the object's deletion waits until its dependents are orphaned."""
    return meta.deletion_timestamp is not None and ORPHAN_FINALIZER in meta.finalizers


def blocks(meta: ObjectMeta, owner_uid: str) -> bool:
    """Return whether this dependent blocks the owner's foreground deletion."""
    return any(
        reference.uid == owner_uid and bool(reference.block_owner_deletion)
        for reference in meta.owner_references
    )


def judge(meta: ObjectMeta, states: Mapping[str, Owner], *, has_dependents: bool) -> Judgement:
    """Decide what to do with an object, given the states of its owners by uid."""
    present = {state: _uids(meta, states, state) for state in Owner}
    leaving = present[Owner.DANGLING] | present[Owner.WAITING]
    if not meta.owner_references:
        return Judgement(Verdict.KEEP)
    if present[Owner.SOLID]:
        return Judgement(Verdict.DROP_OWNERS if leaving else Verdict.KEEP, leaving)
    if present[Owner.WAITING] and has_dependents:
        return Judgement(Verdict.DELETE_FOREGROUND, policy=FOREGROUND)
    return Judgement(Verdict.DELETE, policy=_own_policy(meta))


def lost_or_unblocked(before: ObjectMeta, after: ObjectMeta | None) -> Iterable[OwnerReference]:
    """Yield the owners whose foreground deletion this object no longer blocks."""
    for reference in before.owner_references:
        if reference.block_owner_deletion and (after is None or not blocks(after, reference.uid)):
            yield reference


def _uids(meta: ObjectMeta, states: Mapping[str, Owner], state: Owner) -> frozenset[str]:
    return frozenset(
        reference.uid for reference in meta.owner_references if states[reference.uid] is state
    )


def _own_policy(meta: ObjectMeta) -> str:
    """Return the propagation policy that the object's finalizers request; else Background."""
    if ORPHAN_FINALIZER in meta.finalizers:
        return ORPHAN
    return FOREGROUND if FOREGROUND_FINALIZER in meta.finalizers else BACKGROUND


_IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
_MOVED_GROUPS = {group: home for (group, _), (home, _) in SECOND_HOMES.items()}

Place = tuple[str, str]
"""A group, with the plural or the kind of a resource in it."""

Changed = Callable[[Resource[Any], ObjectMeta | None, ObjectMeta | None], None]
"""Handler called with the resource, and an object's metadata before and after."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """An object's identity: resource, namespace, name and uid."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource[Any], meta: ObjectMeta) -> Coordinates:
        return cls(resource, meta.namespace, meta.name, meta.uid)


@dataclass(frozen=True, slots=True)
class Update:
    """What another discovery changed."""

    added: Sequence[Informer[Any]]
    removed: Sequence[Informer[Any]]


class Graph:
    """The objects that may own others or be owned."""

    def __init__(self, shared: Informers) -> None:
        self._shared = shared
        self._by_resource = {_place(informer.resource): informer for informer in shared}
        self._informers: dict[Place, Informer[Any]] = {}
        self._by_kind: dict[Place, Resource[Any]] = {}

    def update(self, discovered: Discovered) -> Update:
        """Take up the kinds that are served now, and drop those that are not any more.

        What could not be discovered stays. Returns the informers to start and to stop.
        """
        unreadable = {version for version, _ in discovered.failures}
        kept = {
            place: informer
            for place, informer in self._informers.items()
            if informer.resource.api_version in unreadable
        }
        by_kind = {
            key: resource
            for key, resource in self._by_kind.items()
            if resource.api_version in unreadable
        }
        added: list[Informer[Any]] = []
        for resource in discovered.with_verbs("delete", "list", "watch"):
            place = _place(resource)
            by_kind[resource.group, resource.kind] = resource
            if place in _IGNORED:
                continue
            known = self._informers.get(place)
            if known is not None and _is_served_as(resource, known):
                kept[place] = known
                continue
            shared = self._by_resource.get(place)
            # One of a version that is not served would never list.
            if shared is None or not _is_served_as(resource, shared):
                shared = self._shared.make(resource)
            kept[place] = shared
            added.append(shared)
        removed = [
            informer
            for place, informer in self._informers.items()
            if kept.get(place) is not informer
        ]
        self._informers, self._by_kind = kept, by_kind
        return Update(added, removed)

    def is_own(self, informer: Informer[Any]) -> bool:
        """Return whether an informer was made here, so that the garbage collector runs it."""
        return self._by_resource.get(_place(informer.resource)) is not informer

    def __iter__(self) -> Iterator[tuple[Resource[Any], ObjectMeta]]:
        for informer in self._informers.values():
            for obj in informer:
                yield informer.resource, meta_of(obj)

    def resource_of(self, reference: OwnerReference) -> Resource[Any] | None:
        """Return the resource served for the reference's group and kind; None if there is none.

        The version is ignored.
        """
        group = reference.api_version.rpartition("/")[0]
        resource = self._by_kind.get((group, reference.kind))
        return resource or self._by_kind.get((_MOVED_GROUPS.get(group, group), reference.kind))

    def find(self, resource: Resource[Any], namespace: str, name: str) -> ObjectMeta | None:
        informer = self._informers.get(_place(resource))
        if informer is None:
            return None
        obj = informer.get(name, namespace or None)
        return meta_of(obj) if obj is not None else None

    def owner(self, reference: OwnerReference, namespace: str) -> ObjectMeta | None:
        """Return the owner referenced from this namespace; None if the informers lack it."""
        resource = self.resource_of(reference)
        if resource is None:
            return None
        meta = self.find(resource, namespace if resource.is_namespaced else "", reference.name)
        return meta if meta is not None and meta.uid == reference.uid else None

    def dependents(self, owner: ObjectMeta) -> list[Coordinates]:
        """Return the objects that name this owner and are in its namespace, if it has one."""
        return [
            Coordinates.of(informer.resource, meta)
            for informer in self._informers.values()
            for meta in map(meta_of, informer.by_index(OWNER, owner.uid))
            if not owner.namespace or meta.namespace == owner.namespace
        ]

    def holds_uid(self, reference: OwnerReference) -> bool:
        """Return whether an object of the reference's kind has this uid, in any namespace.

        Scans all objects of the kind.
        """
        resource = self.resource_of(reference)
        informer = self._informers.get(_place(resource)) if resource is not None else None
        return informer is not None and any(meta_of(o).uid == reference.uid for o in informer)


def _is_served_as(resource: Resource[Any], informer: Informer[Any]) -> bool:
    """Return whether an informer reads a resource in the version in which it is served."""
    read = informer.resource
    return (read.api_version, read.kind) == (resource.api_version, resource.kind)


def _place(resource: Resource[Any]) -> tuple[str, str]:
    return resource.group, resource.plural


def forward(resource: Resource[Any], changed: Changed) -> Callable[[Any, Any], None]:
    """Return a handler for an informer that calls another with the metadata of objects."""

    def forward_change(before: Any, after: Any) -> None:
        changed(
            resource,
            meta_of(before) if before is not None else None,
            meta_of(after) if after is not None else None,
        )

    return forward_change
