"""Volume sources that pods and PersistentVolumes name alike: storage systems and host paths.

Each is validated as upstream does, whether the node mounts it or refuses it. Source: core
validation `validateVolumeSource` and its parts, Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    Check,
    Row,
    always_text,
    between,
    follows,
    one_of,
    part,
    present,
    renamed,
    required,
    satisfies,
    unless_empty,
    when,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.containers import local_path_errors

ONE_SOURCE: Final = "may not specify more than 1 volume type"
NO_SOURCE: Final = "must specify a volume type"
_AT = {"gcePersistentDisk": "persistentDisk"}
_SECOND_AT = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Upstream's names in errors of the one source, and of a second one, where they differ."""

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File",
                    "FileOrCreate", "Socket")  # fmt: skip
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
ISCSI_FORMAT: Final = "must be valid format"
_ISCSI_LONGEST = 64
ISCSI_TOO_LONG: Final = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
    "iscsi.initiatorName is specified."
)
_HOST_PORTS = "must be a host:port pair or multiple pairs separated by commas"
_HOST_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")
_TENANT_MAX = 64
_RESERVED = (".kubernetes.io", ".k8s.io")
_CSI_DRIVER_MAX = 63


def source_errors(holder: Obj, path: str, sources: Mapping[str, Check]) -> list[FieldError]:
    """Validate the first source, in upstream's order, and reject the others."""
    errors: list[FieldError] = []
    is_first = True
    for field, check in sources.items():
        if field not in holder:
            continue
        if is_first:
            errors += check(holder[field], f"{path}.{_AT.get(field, field)}")
            is_first = False
        else:
            errors.append(
                FieldError.forbidden(f"{path}.{_SECOND_AT.get(field, field)}", ONE_SOURCE)
            )
    return [FieldError.required(path, NO_SOURCE)] if is_first else errors


def needs(*fields: str) -> Check:
    """Return the check that these fields are not empty."""
    return part(*((field, required) for field in fields))


no_backstep = satisfies(lambda value: ".." not in value.split("/"), "must not contain '..'")
"""The check of a path of the host: no element is `..`."""
label_name_errors = follows(names.dns_label_errors)
LABEL_NAME = (required, unless_empty(label_name_errors))
"""The checks of a DNS label that must be present."""

_lun_errors = between(0, 255, "must be between 0 and 255, inclusive")


def iscsi(unknown: str, *secrets: Row) -> Check:
    """Return the check of an iSCSI disk.

    `unknown` is the error of a name with another prefix, `secrets` the rows of the secret.
    """
    name_errors = partial(_iscsi_name_errors, unknown=unknown)
    return part(
        ("targetPortal", required),
        ("iqn", required, unless_empty(name_errors)),
        ("lun", _lun_errors),
        (
            "",
            when(
                lambda source: source.get("chapAuthDiscovery") or source.get("chapAuthSession"),
                ("secretRef", present),
            ),
        ),
        *secrets,
        ("initiatorName", renamed("initiatorname", name_errors)),
    )


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


def _fc_errors(source: Obj, path: str) -> Iterator[FieldError]:
    targets, ids = source.get("targetWWNs", []), source.get("wwids", [])
    if not targets and not ids:
        detail = "must specify either targetWWNs or wwids, but not both"
        yield FieldError.required(f"{path}.targetWWNs", detail)
    if targets and ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        yield FieldError.invalid(f"{path}.targetWWNs", targets, detail)
    if targets and "lun" not in source:
        yield FieldError.required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif targets:
        yield from _lun_errors(source["lun"], f"{path}.lun")


def _quobyte_errors(source: Obj, path: str) -> Iterator[FieldError]:
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
    yield from needs("volume")(source, path)


def _flocker_errors(source: Obj, path: str) -> Iterator[FieldError]:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        yield FieldError.required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        yield FieldError.invalid(path, "resource", detail)
    if "/" in name:
        yield FieldError.invalid(f"{path}.datasetName", name, "must not contain '/'")


def _option_errors(options: Obj, path: str) -> Iterator[FieldError]:
    for key in options:
        namespace = key.partition("/")[0]
        if f".{namespace.lower()}".endswith(_RESERVED):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            yield FieldError.invalid(f"{path}[{key}]", key, detail)


def _disk_uri_errors(source: Obj, path: str) -> Iterator[FieldError]:
    kind, uri = source.get("kind"), source.get("diskURI", "")
    if kind == _MANAGED and not uri.startswith("/subscriptions/"):
        yield FieldError.not_supported(f"{path}.diskURI", uri, [_MANAGED_DISK])
    if kind not in (None, _MANAGED) and not uri.startswith("https://"):
        yield FieldError.not_supported(f"{path}.diskURI", uri, [_BLOB_DISK])


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


def _csi_secret_errors(name: str, path: str) -> Iterator[FieldError]:
    # Upstream names a field `name` of the volume's own here.
    path = path.removesuffix(".nodePublishSecretRef.name")
    return (
        FieldError.invalid(f"{path}.name", name, detail)
        for detail in names.dns_subdomain_errors(name)
    )


_partition = ("partition", between(0, 255, "must be between 1 and 255, inclusive"))
STORAGEOS: tuple[Row, ...] = (
    ("volumeName", *LABEL_NAME),
    ("volumeNamespace", unless_empty(label_name_errors)),
)

SHARED: Mapping[str, Check] = {
    "awsElasticBlockStore": part(("volumeID", required), _partition),
    "azureDisk": part(
        ("diskName", required),
        ("diskURI", required),
        ("cachingMode", one_of("None", "ReadOnly", "ReadWrite")),
        ("kind", one_of("Dedicated", "Managed", "Shared")),
        ("", _disk_uri_errors),
    ),
    "azureFile": needs("secretName", "shareName"),
    "cephfs": needs("monitors"),
    "cinder": part(("volumeID", required), ("secretRef?.name", required)),
    "csi": part(
        ("driver", always_text(csi_driver_name_errors)),
        ("nodePublishSecretRef?.name", required, unless_empty(_csi_secret_errors)),
    ),
    "fc": _fc_errors,
    "flexVolume": part(("driver", required), ("options", _option_errors)),
    "flocker": _flocker_errors,
    "gcePersistentDisk": part(("pdName", required), _partition),
    "gitRepo": part(("repository", required), ("directory", local_path_errors)),
    "glusterfs": needs("endpoints", "path"),
    "hostPath": part(
        ("path", required),
        (
            "",
            when(
                lambda source: source.get("path"),
                ("path", no_backstep),
                ("type", one_of(*_HOST_PATH_TYPES)),
            ),
        ),
    ),
    "iscsi": iscsi("must be valid format starting with iqn, eui, or naa"),
    "nfs": part(
        ("server", required),
        (
            "path",
            required,
            always_text(satisfies(lambda path: path.startswith("/"), "must be an absolute path")),
        ),
    ),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "quobyte": _quobyte_errors,
    "rbd": needs("monitors", "image"),
    "scaleIO": needs("gateway", "system", "volumeName"),
    "storageos": part(*STORAGEOS, ("secretRef?.name", required)),
    "vsphereVolume": needs("volumePath"),
}
"""The rules of a pod's sources; most of them are those of a PersistentVolume too."""
