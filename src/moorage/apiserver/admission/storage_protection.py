"""StorageObjectInUseProtection plugin: what is in use does not go at once.

The controllers in `controllers/storage_protection.py` remove the finalizers. Source: apiserver
plugin StorageObjectInUseProtection of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api.claims.finalizers import (
    ATTRIBUTES_CLASS_PROTECTION,
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
)
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.request import Attributes

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
