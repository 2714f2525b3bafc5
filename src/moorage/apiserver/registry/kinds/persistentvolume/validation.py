"""Validation of PersistentVolumes: where a volume is never changes.

Source: core validation `ValidatePersistentVolumeUpdate`, `volume/validation`, Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from moorage.api.claims.annotations import BETA_MOUNT_OPTIONS
from moorage.api.errors import FieldError
from moorage.api.nodes import GENERALLY_AVAILABLE
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import difference, node_selector, volume_source
from moorage.apiserver.registry.validation.persistent_volumes import SOURCES, volume_spec_errors

_IMMUTABLE = "field is immutable"
_TAKE_MOUNT_OPTIONS = frozenset((
    "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi",
    "cinder", "cephfs", "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk",
))  # fmt: skip
"""Sources whose volumes may have the annotation for mount options."""


def validate_volume(volume: Obj) -> list[FieldError]:
    """Return the errors of a new PersistentVolume."""
    meta, spec = volume["metadata"], volume.get("spec", {})
    errors = volume_spec_errors(spec, meta.get("name", ""), "spec")
    has_options = BETA_MOUNT_OPTIONS in meta.get("annotations", {})
    if has_options and not _TAKE_MOUNT_OPTIONS & spec.keys():
        path = f"metadata.annotations.{BETA_MOUNT_OPTIONS}"
        detail = "may not specify mount options for this volume type"
        errors.append(FieldError.forbidden(path, detail))
    return errors


def validate_volume_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the source, the mode and the node affinity stay."""
    spec, was = new.get("spec", {}), old.get("spec", {})
    errors = validate_volume(new)
    source, before = _source(spec), _source(was)
    secret = "controllerExpandSecretRef"
    if "csi" in source and secret not in before.get("csi", {secret: None}):
        # A volume from before expansion may get the secret that it needs for that.
        source["csi"] = {key: value for key, value in source["csi"].items() if key != secret}
    if source != before:
        shown = difference(volume_source(before), volume_source(source))
        detail = f"spec.persistentvolumesource is immutable after creation\n{shown}"
        errors.append(FieldError.forbidden("spec.persistentvolumesource", detail))
    if spec.get("volumeMode") != was.get("volumeMode"):
        errors.append(FieldError.invalid("volumeMode", spec.get("volumeMode"), _IMMUTABLE))
    errors += _affinity_errors(spec.get("nodeAffinity"), was.get("nodeAffinity"))
    field = "volumeAttributesClassName"
    if field in was and field not in spec:
        detail = "update from non-nil value to nil is forbidden"
        errors.append(FieldError.forbidden(f"spec.{field}", detail))
    return errors


def _source(spec: Obj) -> Obj:
    return {field: spec[field] for field in SOURCES if field in spec}


def _affinity_errors(affinity: Obj | None, was: Obj | None) -> list[FieldError]:
    """Reject another node affinity; labels may be replaced by their successors."""
    if was is None or _is_same(affinity, was):
        return []
    shown = None if affinity is None else {"Required": _shown_selector(affinity)}
    detail = f"{_IMMUTABLE}, except for updating from beta label to GA"
    return [FieldError.invalid("nodeAffinity", shown, detail)]


def _shown_selector(affinity: Obj) -> Obj | None:
    return node_selector(affinity["required"]) if "required" in affinity else None


def _is_same(new: Any, old: Any, key: str = "") -> bool:
    if isinstance(new, dict) and isinstance(old, dict):
        return new.keys() == old.keys() and all(
            _is_same(new[name], old[name], name) for name in old
        )
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(_is_same, new, old))
    return bool(new == old) or (key == "key" and GENERALLY_AVAILABLE.get(old) == new)
