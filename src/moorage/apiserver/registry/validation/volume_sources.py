"""Volume sources that pods and PersistentVolumes name alike: storage systems and host paths.

Each is validated as upstream does, whether the node mounts it or refuses it. Source: core
validation
`validateVolumeSource` and its parts, Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.containers import local_path_errors

Check = Callable[[Any, str], Iterable[FieldError]]

ONE_SOURCE: Final = "may not specify more than 1 volume type"
NO_SOURCE: Final = "must specify a volume type"

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File",
                    "FileOrCreate", "Socket")  # fmt: skip
_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_MANAGED = "Managed"
_MANAGED_DISK = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/"
    "{disk-id}"
)
_BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9.-]+:[^,;*&$|\t\n\f\r ]+"),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}"),
}
_ISCSI_PREFIXES = "must be valid format starting with iqn, eui, or naa"
ISCSI_FORMAT: Final = "must be valid format"
_ISCSI_LONGEST = 64
ISCSI_TOO_LONG: Final = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
    "iscsi.initiatorName is specified."
)
_LUN_RANGE = "must be between 0 and 255, inclusive"
_PARTITION_RANGE = "must be between 1 and 255, inclusive"
_HOST_PORTS = "must be a host:port pair or multiple pairs separated by commas"
_HOST_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")
_TENANT_MAX = 64
_RESERVED = (".kubernetes.io", ".k8s.io")
_CSI_DRIVER_MAX = 63


class Source(msgspec.Struct, frozen=True):
    """One kind of source. `at` and `second_at` are the names in errors, where they differ."""

    field: str
    check: Check
    at: str = ""
    second_at: str = ""


def source_errors(holder: Obj, path: str, sources: Iterable[Source]) -> list[FieldError]:
    """Validate the first source, in upstream's order, and reject the others."""
    errors: list[FieldError] = []
    is_first = True
    for source in sources:
        if source.field not in holder:
            continue
        if is_first:
            errors += source.check(holder[source.field], f"{path}.{source.at or source.field}")
            is_first = False
        else:
            at = f"{path}.{source.second_at or source.field}"
            errors.append(FieldError.forbidden(at, ONE_SOURCE))
    return [FieldError.required(path, NO_SOURCE)] if is_first else errors


def required(*fields: str) -> Check:
    """Return a check that these fields are not empty."""

    def check(source: Obj, path: str) -> Iterator[FieldError]:
        for field in fields:
            if not source.get(field):
                yield FieldError.required(f"{path}.{field}")

    return check


def backstep_errors(value: str, path: str) -> Iterator[FieldError]:
    """Validate a path of the host: no element is `..`."""
    if ".." in value.split("/"):
        yield FieldError.invalid(path, value, "must not contain '..'")


def host_path_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a directory, file or device of the host."""
    value = source.get("path", "")
    if not value:
        yield FieldError.required(f"{path}.path")
        return
    yield from backstep_errors(value, f"{path}.path")
    kind = source.get("type", "")
    if kind not in _HOST_PATH_TYPES:
        yield FieldError.not_supported(f"{path}.type", kind, _HOST_PATH_TYPES)


def git_repo_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a clone of a repository."""
    if not source.get("repository"):
        yield FieldError.required(f"{path}.repository")
    yield from local_path_errors(source.get("directory", ""), f"{path}.directory")


def nfs_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a directory of an NFS server."""
    yield from required("server", "path")(source, path)
    value = source.get("path", "")
    if not value.startswith("/"):
        yield FieldError.invalid(f"{path}.path", value, "must be an absolute path")


def iscsi_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate an iSCSI disk of a pod."""
    yield from required("targetPortal")(source, path)
    yield from iscsi_target_errors(source, path, _ISCSI_PREFIXES)
    yield from iscsi_initiator_errors(source, path, _ISCSI_PREFIXES)


def iscsi_target_errors(source: Obj, path: str, unknown: str) -> Iterator[FieldError]:
    """Validate the target's name, number and authentication; `unknown`: for another prefix."""
    target = source.get("iqn", "")
    if not target:
        yield FieldError.required(f"{path}.iqn")
    else:
        yield from _iscsi_name_errors(target, f"{path}.iqn", unknown)
    lun = source.get("lun", 0)
    if not 0 <= lun <= 255:
        yield FieldError.invalid(f"{path}.lun", lun, _LUN_RANGE)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and (
        "secretRef" not in source
    ):
        yield FieldError.required(f"{path}.secretRef")


def iscsi_initiator_errors(source: Obj, path: str, unknown: str) -> Iterator[FieldError]:
    """Validate the initiator's name, if there is one."""
    if "initiatorName" in source:
        yield from _iscsi_name_errors(source["initiatorName"], f"{path}.initiatorname", unknown)


def _iscsi_name_errors(name: str, path: str, unknown: str) -> Iterator[FieldError]:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None:
        yield FieldError.invalid(path, name, unknown)
    elif not pattern.fullmatch(name):
        yield FieldError.invalid(path, name, ISCSI_FORMAT)


def is_iscsi_too_long(volume_name: str, source: Obj) -> bool:
    """Return whether the name of a volume's interface would be too long."""
    if "initiatorName" not in source:
        return False
    return len(f"{volume_name}:{source.get('targetPortal', '')}".encode()) > _ISCSI_LONGEST


def fc_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a fibre channel disk."""
    targets, ids = source.get("targetWWNs", []), source.get("wwids", [])
    if not targets and not ids:
        detail = "must specify either targetWWNs or wwids, but not both"
        yield FieldError.required(f"{path}.targetWWNs", detail)
    if targets and ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        yield FieldError.invalid(f"{path}.targetWWNs", targets, detail)
    if targets:
        lun = source.get("lun")
        if lun is None:
            detail = "lun is required if targetWWNs is specified"
            yield FieldError.required(f"{path}.lun", detail)
        elif not 0 <= lun <= 255:
            yield FieldError.invalid(f"{path}.lun", lun, _LUN_RANGE)


def _partitioned(field: str) -> Check:
    def check(source: Obj, path: str) -> Iterator[FieldError]:
        yield from required(field)(source, path)
        partition = source.get("partition", 0)
        if not 0 <= partition <= 255:
            yield FieldError.invalid(f"{path}.partition", partition, _PARTITION_RANGE)

    return check


gce_disk_errors = _partitioned("pdName")
aws_disk_errors = _partitioned("volumeID")


def quobyte_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a Quobyte volume."""
    registry = source.get("registry", "")
    if not registry:
        yield FieldError.required(f"{path}.registry", _HOST_PORTS)
    elif len(source.get("tenant", "").encode()) > _TENANT_MAX:
        detail = "must be a UUID and may not exceed a length of 64 characters"
        yield FieldError.required(f"{path}.tenant", detail)
    else:
        for pair in registry.split(","):
            if not _HOST_PORT.fullmatch(pair):
                yield FieldError.invalid(f"{path}.registry", registry, _HOST_PORTS)
    yield from required("volume")(source, path)


def flocker_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a Flocker dataset: it has a name or a UUID."""
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        yield FieldError.required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        yield FieldError.invalid(path, "resource", detail)
    if "/" in name:
        yield FieldError.invalid(f"{path}.datasetName", name, "must not contain '/'")


def flex_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a FlexVolume, whose options may not be Kubernetes' own."""
    yield from required("driver")(source, path)
    for key in source.get("options", {}):
        namespace = key.partition("/")[0]
        if f".{namespace.lower()}".endswith(_RESERVED):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            yield FieldError.invalid(f"{path}.options[{key}]", key, detail)


def azure_disk_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate an Azure disk; what its URI looks like depends on its kind."""
    yield from required("diskName", "diskURI")(source, path)
    caching, kind = source.get("cachingMode"), source.get("kind")
    if caching is not None and caching not in _CACHING_MODES:
        yield FieldError.not_supported(f"{path}.cachingMode", caching, _CACHING_MODES)
    if kind is None:
        return
    if kind not in _DISK_KINDS:
        yield FieldError.not_supported(f"{path}.kind", kind, _DISK_KINDS)
    uri = source.get("diskURI", "")
    if kind == _MANAGED and not uri.startswith("/subscriptions/"):
        yield FieldError.not_supported(f"{path}.diskURI", uri, [_MANAGED_DISK])
    if kind != _MANAGED and not uri.startswith("https://"):
        yield FieldError.not_supported(f"{path}.diskURI", uri, [_BLOB_DISK])


def secret_name_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate that the secret which a source refers to, if any, has a name."""
    if "secretRef" in source:
        yield from required("name")(source["secretRef"], f"{path}.secretRef")


def cinder_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a Cinder volume of a pod."""
    yield from required("volumeID")(source, path)
    yield from secret_name_errors(source, path)


def storageos_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a StorageOS volume of a pod."""
    yield from storageos_name_errors(source, path)
    yield from secret_name_errors(source, path)


def storageos_name_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate the name and the namespace of a StorageOS volume."""
    name, namespace = source.get("volumeName", ""), source.get("volumeNamespace", "")
    if not name:
        yield FieldError.required(f"{path}.volumeName")
    else:
        yield from label_name_errors(name, f"{path}.volumeName")
    if namespace:
        yield from label_name_errors(namespace, f"{path}.volumeNamespace")


def label_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate a DNS label."""
    for detail in names.dns_label_errors(name):
        yield FieldError.invalid(path, name, detail)


def csi_driver_name_errors(
    driver: str, path: str, error: type[FieldError] = FieldError
) -> Iterator[FieldError]:
    """Validate the name of a CSI driver. `error`: the class of errors, for declared rules."""
    if not driver:
        yield error.required(path)
        return
    if len(driver.encode()) > _CSI_DRIVER_MAX:
        yield error.too_long(path, _CSI_DRIVER_MAX)
    for detail in names.dns_subdomain_errors(driver.lower()):
        yield error.invalid(path, driver, detail)


def csi_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate a CSI volume of a pod."""
    yield from csi_driver_name_errors(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" not in source:
        return
    name = source["nodePublishSecretRef"].get("name", "")
    if not name:
        yield FieldError.required(f"{path}.nodePublishSecretRef.name")
        return
    for detail in names.dns_subdomain_errors(name):
        # Upstream names the volume's own field here.
        yield FieldError.invalid(f"{path}.name", name, detail)


glusterfs_errors = required("endpoints", "path")
rbd_errors = required("monitors", "image")
cephfs_errors = required("monitors")
azure_file_errors = required("secretName", "shareName")
vsphere_errors = required("volumePath")
photon_errors = required("pdID")
portworx_errors = required("volumeID")
scale_io_errors = required("gateway", "system", "volumeName")
