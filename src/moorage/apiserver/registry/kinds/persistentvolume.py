"""PersistentVolumes. Source: core defaults, validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api.claims.annotations import BETA_CLASS, BETA_MOUNT_OPTIONS
from moorage.api.errors import FieldError
from moorage.api.nodes import GENERALLY_AVAILABLE
from moorage.apiserver.registry.columns.cells import CORE
from moorage.apiserver.registry.columns.shared import (
    UNSET,
    access_modes_text,
    class_text,
    phase_text,
)
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.defaults import default_volume_source, round_amounts
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import difference, node_selector, volume_source
from moorage.apiserver.registry.validation.persistent_volumes import SOURCES, volume_spec_errors
from moorage.apiserver.registry.warnings import REMOVED_SOURCES, node_term_warnings

_SINCE = "lastPhaseTransitionTime"
_IMMUTABLE = "field is immutable"
_TAKE_MOUNT_OPTIONS = frozenset((
    "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi",
    "cinder", "cephfs", "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk",
))  # fmt: skip
"""Sources whose volumes may have the annotation for mount options."""
_RECYCLE = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "
    "recommended approach is to use dynamic provisioning."
)
_SOURCES = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")
"""Sources that are warned about, in upstream's order."""
_SPEC, _STATUS = f"{CORE}.PersistentVolumeSpec", f"{CORE}.PersistentVolumeStatus"
_TYPES = "io.k8s.api.core.v1"


def prepare_volume(volume: Obj) -> None:
    """Reset the status of a new volume: Pending, from now on."""
    volume["status"] = {"phase": "Pending"}
    if "creationTimestamp" in volume["metadata"]:
        volume["status"][_SINCE] = volume["metadata"]["creationTimestamp"]


def prepare_volume_status(new: Obj, old: Obj) -> None:
    """Keep everything but the status, and the time of the phase if both stay."""
    keep_spec(new, old)
    status, was = new.setdefault("status", {}), old.get("status", {})
    if status.get("phase") == was.get("phase") and _SINCE in was:
        status.setdefault(_SINCE, was[_SINCE])


def stamp_phase(new: Obj, old: Obj, now: str) -> None:
    """Set the time of a new phase, unless the writer did."""
    status, was = new.get("status", {}), old.get("status", {})
    has_changed = status.get("phase") != was.get("phase")
    if has_changed and status.get(_SINCE) in (None, was.get(_SINCE)):
        status[_SINCE] = now


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


_ANNOTATIONS = {
    BETA_CLASS: 'deprecated since v1.8; use "storageClassName" attribute instead',
    BETA_MOUNT_OPTIONS: 'deprecated since v1.31; use "mountOptions" attribute instead',
}


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


def _claim_text(claim: Obj) -> str:
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}"


PRINTER = printer(
    NAME,
    column("Capacity", "spec.capacity.storage", absent="0", documented_by=f"{_SPEC}.capacity"),
    column("Access Modes", "spec.accessModes", of=_SPEC, show=access_modes_text),
    column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", of=_SPEC),
    column("Status", phase_text, documented_by=f"{_STATUS}.phase"),
    column("Claim", "spec.claimRef", of=_SPEC, show=_claim_text),
    column("StorageClass", class_text, description="StorageClass of the volume"),
    column(
        "VolumeAttributesClass",
        "spec.volumeAttributesClassName",
        absent=UNSET,
        description="VolumeAttributesClass of the volume",
    ),
    column("Reason", "status.reason", of=_STATUS),
    AGE,
    column("VolumeMode", "spec.volumeMode", of=_SPEC, absent=UNSET, priority=1),
)

default_volume = defaults(
    ("status.phase", "Pending"),
    ("spec.persistentVolumeReclaimPolicy", "Retain"),
    ("spec.volumeMode", "Filesystem"),
    ("spec.capacity?", round_amounts),
    ("spec", default_volume_source),
)

PERSISTENT_VOLUME = Kind(
    name="PersistentVolume",
    plural="persistentvolumes",
    served=(Served("", "v1", f"{_TYPES}.PersistentVolume"),),
    is_namespaced=False,
    short_names=("pv",),
    strategy=Strategy(
        default=default_volume,
        prepare_create=prepare_volume,
        prepare_update=keep_status,
        validate=validate_volume,
        validate_update=validate_volume_update,
        warn=warn_volume,
        parts={"status": PartRules(prepare=prepare_volume_status, stamp=stamp_phase)},
        returns_deleted=True,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
