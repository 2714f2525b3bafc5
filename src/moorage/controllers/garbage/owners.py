"""Owner references: the garbage collector's verdict on a dependent. Pure.

Source: API docs "Garbage Collection", "Owners and Dependents"; KEP-1355 for cross-namespace owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from moorage.api.meta import ObjectMeta, OwnerReference

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
