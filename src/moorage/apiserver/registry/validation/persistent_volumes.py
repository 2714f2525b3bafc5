"""Specifications of volumes: of PersistentVolumes, and inline in VolumeAttachments.

Source: core validation `ValidatePersistentVolumeSpec` of Kubernetes 1.36.
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
    forbidden,
    one_of,
    or_else,
    part,
    present_as,
    required,
    satisfies,
    unless_empty,
    when,
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
    source_errors = _source_errors(spec, name, path)
    return [*_first_errors(spec, path), *source_errors, *_last_errors(spec, path)]


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


def _attributes_class_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required(path, "an empty string is disallowed")
    yield from class_name_errors(name, path)


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

_first_errors = part(
    ("accessModes", required, access_mode_errors),
    ("capacity", or_else({}, _capacity_errors)),
    ("persistentVolumeReclaimPolicy", unless_empty(one_of("Delete", _RECYCLE, _RETAIN))),
    (
        "nodeAffinity?.required",
        present_as("must specify required node constraints"),
        node_selector_errors,
    ),
)
_last_errors = part(
    ("storageClassName", class_name_errors),
    ("volumeMode", volume_mode_errors),
    ("volumeAttributesClassName", _attributes_class_errors),
    (
        "",
        when(
            lambda spec: "volumeAttributesClassName" in spec,
            ("csi", present_as("has to be specified when using volumeAttributesClassName")),
        ),
    ),
)

inline_volume_spec_errors = part(
    ("claimRef", forbidden(_NOT_INLINE)),
    ("capacity", forbidden(_NOT_INLINE)),
    ("csi", present_as(f"has to be specified {_INLINE}")),
    ("accessModes", required, access_mode_errors),
    (
        "persistentVolumeReclaimPolicy",
        when(lambda policy: policy != _RETAIN, ("", forbidden(f"may only be {_RETAIN} {_INLINE}"))),
    ),
    ("nodeAffinity", forbidden(_NOT_INLINE)),
    ("", lambda spec, path: _source_errors(spec, "", path)),
    ("storageClassName", forbidden(_NOT_INLINE)),
    (
        "volumeMode",
        when(
            lambda mode: mode != _FILESYSTEM,
            ("", forbidden(f"may not specify volumeMode other than {_FILESYSTEM} {_INLINE}")),
        ),
    ),
)
"""Validate a specification that no PersistentVolume has: CSI, and little else."""
