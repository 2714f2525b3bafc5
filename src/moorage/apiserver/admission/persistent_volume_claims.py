"""Admission of claims: which may grow, what is protected while it is in use."""

from __future__ import annotations

from collections.abc import Callable

from moorage.api import quantity
from moorage.api.claims.annotations import BETA_CLASS
from moorage.api.claims.binding import (
    ATTRIBUTES_CLASS_PROTECTION,
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
)
from moorage.api.persistent_volumes import StorageClass
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

# PersistentVolumeClaimResize plugin: which claims may grow.
#
# Source: apiserver plugin PersistentVolumeClaimResize of Kubernetes 1.36.

_NOT_BOUND = "Only bound persistent volume claims can be expanded"
_NOT_EXPANDABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
    "must support resize"
)


class PersistentVolumeClaimResize:
    """Refuses to let a claim grow unless it is bound and its class allows expansion.

    `find_class` returns a class by its name.
    """

    name = "PersistentVolumeClaimResize"
    scope = Scope.of(["persistentvolumeclaims"], [UPDATE])
    mutate = None

    def __init__(self, find_class: Callable[[str], StorageClass | None]) -> None:
        self._find_class = find_class
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        new, old = attributes.obj, attributes.old
        assert new is not None
        assert old is not None
        if _size(new) <= _size(old):
            return
        if old.get("status", {}).get("phase") != "Bound":
            raise refused(attributes, _NOT_BOUND)
        name = _class_name(new)
        storage_class = self._find_class(name) if name and name == _class_name(old) else None
        if storage_class is None or not storage_class.allow_volume_expansion:
            raise refused(attributes, _NOT_EXPANDABLE)


def _size(claim: Obj) -> quantity.Quantity:
    requests = claim["spec"].get("resources", {}).get("requests", {})
    return quantity.parse(requests.get("storage", "0"))


def _class_name(claim: Obj) -> str:
    annotations = claim["metadata"].get("annotations", {})
    return str(annotations.get(BETA_CLASS, claim["spec"].get("storageClassName", "")))


# StorageObjectInUseProtection plugin: what is in use does not go at once.
#
# The controllers in `controllers/storage_protection.py` remove the finalizers. Source: apiserver
# plugin StorageObjectInUseProtection of Kubernetes 1.36.

_FINALIZERS = {
    "persistentvolumeclaims": CLAIM_PROTECTION,
    "persistentvolumes": VOLUME_PROTECTION,
    "volumeattributesclasses.storage.k8s.io": ATTRIBUTES_CLASS_PROTECTION,
}


class StorageObjectInUseProtection:
    """Adds a finalizer to new claims, volumes and classes of volume attributes."""

    name = "StorageObjectInUseProtection"
    scope = Scope.of(list(_FINALIZERS), [CREATE])
    validate = None

    def __init__(self) -> None:
        self.mutate = self._protect

    def _protect(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        meta, finalizer = attributes.obj["metadata"], _FINALIZERS[attributes.kind.resource]
        own = meta.get("finalizers", [])
        if finalizer not in own:
            meta["finalizers"] = [*own, finalizer]
