"""Next step of a claim: bound to a volume, provisioned, waiting or lost. Pure.

Source: kube-controller-manager `persistentvolume` controller, API docs "Persistent Volumes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from moorage.api.claims import (
    best_match,
    class_of_claim,
    default_class,
    has_access_modes,
    is_bound_to,
    is_delayed,
    mismatch,
)
from moorage.api.claims.annotations import BIND_COMPLETED, SELECTED_NODE
from moorage.api.claims.classes import names_class
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.wire.client.recorder import NORMAL, WARNING

PENDING, BOUND, LOST = "Pending", "Bound", "Lost"
_RETRY_S = 15.0


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event about a claim or a volume."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the claim to this volume, or complete that binding."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class Wait:
    """Set the phase Pending; the event says for what. `again_s` repeats the step after a time."""

    announcement: Announcement | None = None
    again_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lose:
    """Set the phase Lost; the event is recorded if the phase changes."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class AssignClass:
    """Give the claim the default class."""

    name: str


@dataclass(frozen=True, slots=True)
class Provision:
    """Have a volume made; None stands for a class that does not exist."""

    storage_class: StorageClass | None


ClaimStep = Bind | Wait | Lose | AssignClass | Provision


@dataclass(frozen=True, slots=True)
class Storage:
    """The volumes and classes that a claim is judged by.

    `waiting_pods` returns the names of the unscheduled pods that use the claim.
    """

    volume: Callable[[str], PersistentVolume | None]
    volumes: Callable[[], Iterable[PersistentVolume]]
    storage_class: Callable[[str], StorageClass | None]
    storage_classes: Callable[[], Iterable[StorageClass]]
    waiting_pods: Callable[[PersistentVolumeClaim], Iterable[str]]


def claim_step(claim: PersistentVolumeClaim, storage: Storage) -> ClaimStep:
    """Return the next step of a claim. Raises ValueError for a selector that does not parse."""
    name = claim.spec.volume_name
    volume = storage.volume(name) if name else None
    if BIND_COMPLETED in claim.metadata.annotations:
        return _bound_step(claim, volume)
    if name:
        return _requested_step(claim, volume)
    return _unbound_step(claim, storage)


def _bound_step(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimStep:
    if not claim.spec.volume_name:
        return _lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. "
                     "Data on the volume is lost!")  # fmt: skip
    if volume is None:
        return _lost("ClaimLost", "Bound claim has lost its PersistentVolume. "
                     "Data on the volume is lost!")  # fmt: skip
    reference = volume.spec.claim_ref
    if reference is None or reference.uid == claim.metadata.uid:
        return Bind(volume)
    return _lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound "
                 "incorrectly")  # fmt: skip


def _lost(reason: str, message: str) -> Lose:
    return Lose(Announcement(WARNING, reason, message))


def _requested_step(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimStep:
    """The claim names a volume, which has not been bound to it yet."""
    if volume is None:
        return Wait()
    if volume.spec.claim_ref is None:
        why = mismatch(volume, claim)
        if not why:
            return Bind(volume)
        message = f'Cannot bind to requested volume "{volume.metadata.name}": {why}'
        return Wait(Announcement(WARNING, "VolumeMismatch", message))
    if is_bound_to(volume, claim):
        return Bind(volume)
    message = f'volume "{volume.metadata.name}" already bound to a different claim.'
    return Wait(Announcement(WARNING, "FailedBinding", message))


def _unbound_step(claim: PersistentVolumeClaim, storage: Storage) -> ClaimStep:
    class_name = class_of_claim(claim)
    storage_class = storage.storage_class(class_name) if class_name else None
    is_late = is_delayed(storage_class)
    volume = find_volume(claim, storage.volumes(), is_late=is_late)
    if volume is not None:
        return Bind(volume)
    if not names_class(claim):
        chosen = default_class(storage.storage_classes())
        if chosen is not None:
            return AssignClass(chosen.metadata.name)
    if is_late and SELECTED_NODE not in claim.metadata.annotations:
        return Wait(_waiting_for_pods(list(storage.waiting_pods(claim))), _RETRY_S)
    if class_name:
        return Provision(storage_class)
    return Wait(Announcement(
        NORMAL, "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    ))  # fmt: skip


def find_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, is_late: bool
) -> PersistentVolume | None:
    """Return the volume for a claim: of those with the fewest access modes the best match."""
    groups: dict[frozenset[str], list[PersistentVolume]] = {}
    for volume in volumes:
        if has_access_modes(volume, claim):
            groups.setdefault(frozenset(volume.spec.access_modes), []).append(volume)
    for modes in sorted(groups, key=lambda modes: (len(modes), sorted(modes))):
        best = best_match(claim, groups[modes], is_delayed=is_late)
        if best is not None:
            return best
    return None


def _waiting_for_pods(pods: list[str]) -> Announcement:
    if not pods:
        message = "waiting for first consumer to be created before binding"
        return Announcement(NORMAL, "WaitForFirstConsumer", message)
    what = "pod" if len(pods) == 1 else "pods"
    message = f"waiting for {what} {','.join(sorted(pods))} to be scheduled"
    return Announcement(NORMAL, "WaitForPodScheduled", message)
