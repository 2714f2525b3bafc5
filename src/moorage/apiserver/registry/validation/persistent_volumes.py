"""Specifications of volumes: of PersistentVolumes, and inline in VolumeAttachments.

Source: core validation `ValidatePersistentVolumeSpec` of Kubernetes 1.37.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    Check,
    Row,
    always_text,
    follows,
    part,
    required,
    satisfies,
    unless_empty,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation import volume_sources as storage
from moorage.apiserver.registry.validation.scheduling import node_selector_errors
from moorage.apiserver.registry.validation.volume_claims import (
    access_mode_errors,
    class_name_errors,
    volume_mode_errors,
)
from moorage.apiserver.registry.validation.volume_sources import source_errors

_RETAIN, _RECYCLE = "Retain", "Recycle"
_POLICIES = ("Delete", _RECYCLE, _RETAIN)
_FILESYSTEM = "Filesystem"
_INLINE = "in the context of inline volumes"
_NOT_INLINE = f"may not be specified {_INLINE}"
_CSI_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)


def volume_spec_errors(spec: Obj, name: str, path: str) -> list[FieldError]:
    """Return the errors of the specification of a PersistentVolume of that name."""
    modes, at = spec.get("accessModes", []), f"{path}.accessModes"
    errors = [] if modes else [FieldError.required(at)]
    errors += access_mode_errors(modes, at)
    errors += _capacity_errors(spec.get("capacity", {}), f"{path}.capacity")
    policy, at = spec.get("persistentVolumeReclaimPolicy", ""), "persistentVolumeReclaimPolicy"
    if policy and policy not in _POLICIES:
        errors.append(FieldError.not_supported(f"{path}.{at}", policy, _POLICIES))
    if "nodeAffinity" in spec:
        errors += _affinity_errors(spec["nodeAffinity"], f"{path}.nodeAffinity")
    errors += _source_errors(spec, name, path)
    at = f"{path}.storageClassName"
    errors += class_name_errors(spec.get("storageClassName", ""), at)
    errors += volume_mode_errors(spec.get("volumeMode"), f"{path}.volumeMode")
    return [*errors, *_attributes_class_errors(spec, path)]


def inline_volume_spec_errors(spec: Obj, path: str) -> list[FieldError]:
    """Return the errors of a specification that no PersistentVolume has: CSI, and little else."""
    return [*_inline_errors(spec, path)]


def _inline_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    for field in ("claimRef", "capacity"):
        if field in spec:
            yield FieldError.forbidden(f"{path}.{field}", _NOT_INLINE)
    if "csi" not in spec:
        yield FieldError.required(f"{path}.csi", f"has to be specified {_INLINE}")
    modes = spec.get("accessModes", [])
    if not modes:
        yield FieldError.required(f"{path}.accessModes")
    yield from access_mode_errors(modes, f"{path}.accessModes")
    if spec.get("persistentVolumeReclaimPolicy", _RETAIN) != _RETAIN:
        at = f"{path}.persistentVolumeReclaimPolicy"
        yield FieldError.forbidden(at, f"may only be {_RETAIN} {_INLINE}")
    if "nodeAffinity" in spec:
        yield FieldError.forbidden(f"{path}.nodeAffinity", _NOT_INLINE)
    yield from _source_errors(spec, "", path)
    if "storageClassName" in spec:
        yield FieldError.forbidden(f"{path}.storageClassName", _NOT_INLINE)
    if spec.get("volumeMode", _FILESYSTEM) != _FILESYSTEM:
        detail = f"may not specify volumeMode other than {_FILESYSTEM} {_INLINE}"
        yield FieldError.forbidden(f"{path}.volumeMode", detail)


def _capacity_errors(capacity: dict[str, str], path: str) -> Iterator[FieldError]:
    if not capacity:
        yield FieldError.required(path)
    if capacity.keys() != {"storage"}:
        yield FieldError.not_supported(path, capacity or None, ["storage"])
    for name, text in capacity.items():
        amount, at = quantity.parse(text), f"{path}[{name}]"
        if amount.nano < 0:
            yield FieldError.invalid(at, amount.value, "must be a valid resource quantity")
        if amount.nano <= 0:
            yield FieldError.invalid(at, text, "must be greater than zero")


def _affinity_errors(affinity: Obj, path: str) -> Iterator[FieldError]:
    if "required" in affinity:
        yield from node_selector_errors(affinity["required"], f"{path}.required")
    else:
        detail = "must specify required node constraints"
        yield FieldError.required(f"{path}.required", detail)


def _source_errors(spec: Obj, name: str, path: str) -> Iterator[FieldError]:
    yield from source_errors(spec, path, _SOURCES)
    if "iscsi" in spec and storage.is_iscsi_too_long(name, spec["iscsi"]):
        portal = spec["iscsi"].get("targetPortal", "")
        yield FieldError.invalid(f"{path}.iscsi.targetportal", portal, storage.ISCSI_TOO_LONG)
    if "local" in spec and "nodeAffinity" not in spec:
        detail = "Local volume requires node affinity"
        yield FieldError.required(f"{path}.nodeAffinity", detail)
    root = posixpath.normpath(spec.get("hostPath", {}).get("path", "."))
    if root in ("/", "//") and spec.get("persistentVolumeReclaimPolicy") == _RECYCLE:
        at = f"{path}.persistentVolumeReclaimPolicy"
        yield FieldError.forbidden(at, "may not be 'recycle' for a hostPath mount of '/'")


def _attributes_class_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return
    at = f"{path}.volumeAttributesClassName"
    if not name:
        yield FieldError.required(at, "an empty string is disallowed")
    yield from class_name_errors(name, at)
    if "csi" not in spec:
        detail = "has to be specified when using volumeAttributesClassName"
        yield FieldError.required(f"{path}.csi", detail)


_SECRET_ROWS = tuple(
    (f"{field}?.{name}", *checks)
    for field in _CSI_SECRETS
    for name, checks in (
        ("name", (required, unless_empty(follows(names.dns_subdomain_errors)))),
        ("namespace", storage.LABEL_NAME),
    )
)
_SECRET: tuple[Row, ...] = (("secretRef?.name", required), ("secretRef?.namespace", required))
_NAMESPACE = "if the endpointnamespace is set, it must be a valid namespace name"
_OWN: dict[str, Check] = {
    "glusterfs": part(
        ("endpoints", required),
        ("path", required),
        (
            "endpointsNamespace",
            satisfies(bool, _NAMESPACE),
            unless_empty(storage.label_name_errors),
        ),
    ),
    "iscsi": storage.iscsi(storage.ISCSI_FORMAT, ("secretRef?.name", required)),
    "cinder": part(("volumeID", required), *_SECRET),
    "storageos": part(*storage.STORAGEOS, *_SECRET),
    "azureFile": part(
        ("secretName", required),
        ("shareName", required),
        ("secretNamespace", required.check),
    ),
    "local": part(("path", required, always_text(storage.no_backstep))),
    "csi": part(
        ("driver", always_text(storage.csi_driver_name_errors)),
        ("volumeHandle", required),
        *_SECRET_ROWS,
    ),
}
SOURCES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd",
    "quobyte", "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume",
    "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
"""The fields of a specification that say where a volume is, in upstream's order: one is set."""

_SOURCES = {field: _OWN.get(field) or storage.SHARED[field] for field in SOURCES}
