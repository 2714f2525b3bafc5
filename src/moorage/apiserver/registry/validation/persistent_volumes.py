"""Specifications of volumes: of PersistentVolumes, and inline in VolumeAttachments.

Source: core validation `ValidatePersistentVolumeSpec` of Kubernetes 1.36.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation import volume_sources as storage
from moorage.apiserver.registry.validation.scheduling import node_selector_errors
from moorage.apiserver.registry.validation.volume_claims import (
    access_mode_errors,
    class_name_errors,
    volume_mode_errors,
)
from moorage.apiserver.registry.validation.volume_sources import Source, required, source_errors

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


def _glusterfs_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from storage.glusterfs_errors(source, path)
    namespace, at = source.get("endpointsNamespace"), f"{path}.endpointsNamespace"
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        yield FieldError.invalid(at, namespace, detail)
    elif namespace is not None:
        yield from storage.label_name_errors(namespace, at)


def _iscsi_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from required("targetPortal")(source, path)
    yield from storage.iscsi_target_errors(source, path, storage.ISCSI_FORMAT)
    yield from storage.secret_name_errors(source, path)
    yield from storage.iscsi_initiator_errors(source, path, storage.ISCSI_FORMAT)


def _secret_errors(source: Obj, path: str) -> Iterator[FieldError]:
    if "secretRef" in source:
        yield from required("name", "namespace")(source["secretRef"], f"{path}.secretRef")


def _cinder_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from required("volumeID")(source, path)
    yield from _secret_errors(source, path)


def _storageos_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from storage.storageos_name_errors(source, path)
    yield from _secret_errors(source, path)


def _azure_file_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from storage.azure_file_errors(source, path)
    if source.get("secretNamespace") == "":
        yield FieldError.required(f"{path}.secretNamespace")


def _local_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from required("path")(source, path)
    yield from storage.backstep_errors(source.get("path", ""), f"{path}.path")


def _csi_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from storage.csi_driver_name_errors(source.get("driver", ""), f"{path}.driver")
    yield from required("volumeHandle")(source, path)
    for field in _CSI_SECRETS:
        if field in source:
            yield from _secret_reference_errors(source[field], f"{path}.{field}")


def _secret_reference_errors(reference: Obj, path: str) -> Iterator[FieldError]:
    name, namespace = reference.get("name", ""), reference.get("namespace", "")
    if not name:
        yield FieldError.required(f"{path}.name")
    else:
        for detail in names.dns_subdomain_errors(name):
            yield FieldError.invalid(f"{path}.name", name, detail)
    if not namespace:
        yield FieldError.required(f"{path}.namespace")
    else:
        yield from storage.label_name_errors(namespace, f"{path}.namespace")


_SOURCES = (
    Source("hostPath", storage.host_path_errors),
    Source("gcePersistentDisk", storage.gce_disk_errors, at="persistentDisk"),
    Source("awsElasticBlockStore", storage.aws_disk_errors),
    Source("glusterfs", _glusterfs_errors),
    Source("flocker", storage.flocker_errors),
    Source("nfs", storage.nfs_errors),
    Source("rbd", storage.rbd_errors),
    Source("quobyte", storage.quobyte_errors),
    Source("cephfs", storage.cephfs_errors, second_at="cephFS"),
    Source("iscsi", _iscsi_errors),
    Source("cinder", _cinder_errors),
    Source("fc", storage.fc_errors),
    Source("flexVolume", storage.flex_errors),
    Source("azureFile", _azure_file_errors),
    Source("vsphereVolume", storage.vsphere_errors),
    Source("photonPersistentDisk", storage.photon_errors),
    Source("portworxVolume", storage.portworx_errors),
    Source("azureDisk", storage.azure_disk_errors),
    Source("scaleIO", storage.scale_io_errors),
    Source("local", _local_errors),
    Source("storageos", _storageos_errors),
    Source("csi", _csi_errors),
)
"""Every source in upstream's order. Names that differ from the field's are upstream's."""

SOURCES = tuple(source.field for source in _SOURCES)
"""The fields of a specification that say where a volume is: one of them is set."""
