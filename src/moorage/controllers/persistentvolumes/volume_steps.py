"""Next step of a volume: its phase, and what becomes of it once its claim is gone. Pure.

Source: kube-controller-manager `persistentvolume` controller, API docs "Persistent Volumes".
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.api.claims import modes_differ
from moorage.api.claims.annotations import PROVISIONED_BY
from moorage.api.claims.classes import PROVISIONER
from moorage.api.claims.pod_claims import source_kind
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.controllers.persistentvolumes.claim_steps import Announcement
from moorage.wire.client.recorder import WARNING

AVAILABLE, BOUND, RELEASED, FAILED = "Available", "Bound", "Released", "Failed"
RETAIN, DELETE, RECYCLE = "Retain", "Delete", "Recycle"
_IN_TREE = "kubernetes.io/"


@dataclass(frozen=True, slots=True)
class SetPhase:
    """Set a phase."""

    phase: str


@dataclass(frozen=True, slots=True)
class SyncClaim:
    """Leave the rest to the claim, which has yet to name the volume."""


@dataclass(frozen=True, slots=True)
class ReportMismatch:
    """Record that volume and claim, which the volume names, are of different volume modes."""

    about_volume: Announcement
    about_claim: Announcement


@dataclass(frozen=True, slots=True)
class Unbind:
    """Undo a binding: the claim has another volume."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Release the volume and carry out its reclaim policy."""


VolumeStep = SetPhase | SyncClaim | ReportMismatch | Unbind | Reclaim


def volume_step(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeStep:
    """Return the next step of a volume; `claim` is the one that it names, by name and uid."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return SetPhase(AVAILABLE)
    if claim is None:
        return Reclaim()
    if not claim.spec.volume_name:
        return _report(volume, claim) if modes_differ(claim, volume) else SyncClaim()
    if claim.spec.volume_name == volume.metadata.name:
        return SetPhase(BOUND)
    is_provisioned = PROVISIONED_BY in volume.metadata.annotations
    if is_provisioned and volume.spec.persistent_volume_reclaim_policy == DELETE:
        return Reclaim()
    return Unbind()


def _report(volume: PersistentVolume, claim: PersistentVolumeClaim) -> ReportMismatch:
    why = "due to incompatible volumeMode."
    of_volume = (
        f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{claim.metadata.name}" '
        f"{why}"
    )
    of_claim = (
        f'Cannot bind PersistentVolume "{volume.metadata.name}" to requested '
        f"PersistentVolumeClaim {why}"
    )
    return ReportMismatch(
        Announcement(WARNING, "VolumeMismatch", of_volume),
        Announcement(WARNING, "VolumeMismatch", of_claim),
    )


def is_released(volume: PersistentVolume) -> bool:
    """Return whether the phase already says that the claim is gone."""
    return volume.status.phase in (RELEASED, FAILED)


def reclaim_problem(volume: PersistentVolume) -> Announcement | None:
    """Return why a volume's reclaim policy cannot be carried out; None if it can, or need not be.

    Volumes of a provisioner outside Moorage are left to it.
    """
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy in (RETAIN, ""):
        return None
    if policy == RECYCLE:
        return Announcement(
            WARNING, "VolumeFailedRecycle", "No recycler plugin found for the volume!"
        )
    if policy != DELETE:
        return Announcement(
            WARNING, "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        )  # fmt: skip
    provisioner = volume.metadata.annotations.get(PROVISIONED_BY, "")
    if provisioner and not provisioner.startswith(_IN_TREE):
        return None
    if not provisioner and volume.spec.csi is not None:
        return None
    return Announcement(
        WARNING, "VolumeFailedDelete",
        f'error getting deleter volume plugin for volume "{volume.metadata.name}": '
        f"no deletable volume plugin matched; Moorage deletes no volumes of kind "
        f"{source_kind(volume.spec)}: delete its data and the object by hand",
    )  # fmt: skip


def is_ours(volume: PersistentVolume) -> bool:
    """Return whether Moorage provisioned the volume, and so removes it too."""
    return volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
