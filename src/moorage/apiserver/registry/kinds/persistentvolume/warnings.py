"""Warnings about PersistentVolumes. Source: `pkg/api/persistentvolume` of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api.claims.annotations import BETA_CLASS, BETA_MOUNT_OPTIONS
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.warnings import REMOVED_SOURCES, node_term_warnings

_ANNOTATIONS = {
    BETA_CLASS: 'deprecated since v1.8; use "storageClassName" attribute instead',
    BETA_MOUNT_OPTIONS: 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_RECYCLE = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "
    "recommended approach is to use dynamic provisioning."
)
_SOURCES = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")
"""Sources that are warned about, in upstream's order."""


def warn_volume(volume: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a new or changed PersistentVolume."""
    del old
    spec, annotations = volume.get("spec", {}), volume["metadata"].get("annotations", {})
    warnings = [
        f"metadata.annotations[{key}]: {text}"
        for key, text in _ANNOTATIONS.items()
        if key in annotations
    ]
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        warnings.append(_RECYCLE)
    terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    for index, term in enumerate(terms):
        path = f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]"
        warnings += node_term_warnings(term, path)
    for source in _SOURCES:
        if source in spec:
            shown, text = REMOVED_SOURCES[source]
            warnings.append(f"spec.{shown}: {text}")
    return warnings
