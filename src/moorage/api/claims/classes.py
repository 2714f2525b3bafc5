"""Storage classes of claims and volumes; the default. Source: API docs "Storage Classes"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.api.claims.annotations import BETA_CLASS, BETA_DEFAULT_CLASS, DEFAULT_CLASS
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes an administrator makes."""


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """Return the name of the claim's class, "" for none."""
    named = claim.metadata.annotations.get(BETA_CLASS)
    return named if named is not None else claim.spec.storage_class_name or ""


def class_of_volume(volume: PersistentVolume) -> str:
    """Return the name of the volume's class, "" for none."""
    named = volume.metadata.annotations.get(BETA_CLASS)
    return named if named is not None else volume.spec.storage_class_name


def names_class(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim names a class. "" is a choice too: no class at all."""
    return BETA_CLASS in claim.metadata.annotations or claim.spec.storage_class_name is not None


def is_delayed(storage_class: StorageClass | None) -> bool:
    """Return whether claims of the class are bound once a pod that uses them is scheduled."""
    return storage_class is not None and (
        storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class: of several the newest, of equally old ones the first by name."""
    marked = sorted(filter(_is_default, classes), key=lambda entry: entry.metadata.name)
    return max(marked, key=lambda entry: entry.metadata.creation_timestamp or "", default=None)


def _is_default(storage_class: StorageClass) -> bool:
    return is_marked_default(storage_class.metadata.annotations)


def is_marked_default(annotations: Mapping[str, str]) -> bool:
    """Return whether annotations of a class make it the default one."""
    return "true" in (annotations.get(DEFAULT_CLASS), annotations.get(BETA_DEFAULT_CLASS))
