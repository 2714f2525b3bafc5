"""Volume validation: each volume of a pod has exactly one well-formed source.

Source: core validation `ValidateVolumes` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    Check,
    Row,
    part,
    present,
    required,
    required_one_of,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation import volume_sources as storage
from moorage.apiserver.registry.validation.projections import (
    downward_errors,
    item_errors,
    mode_errors,
    projected_errors,
)
from moorage.apiserver.registry.validation.volume_claims import claim_template_errors
from moorage.apiserver.registry.validation.volume_sources import source_errors

_CREATED_CLAIM = "must not reference a PVC that gets created for an ephemeral volume"


def volume_errors(
    volumes: list[Obj], path: str, pod_name: str | None = None
) -> tuple[dict[str, Obj], list[FieldError]]:
    """Validate the volumes of a pod; `pod_name` is None for those of a template.

    Returns the volumes by name, and the errors.
    """
    by_name: dict[str, Obj] = {}
    errors: list[FieldError] = []
    created_claims: set[str] = set()
    if pod_name:
        created_claims = {
            f"{pod_name}-{volume.get('name', '')}" for volume in volumes if "ephemeral" in volume
        }
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        own_errors = [*_volume_errors(volume, at, pod_name)]
        if name in by_name:
            own_errors.append(FieldError.duplicate(f"{at}.name", name))
        if not own_errors:
            by_name[name] = volume
        errors += own_errors
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        if claim in created_claims:
            at = f"{at}.persistentVolumeClaim.claimName"
            errors.append(FieldError.invalid(at, claim, _CREATED_CLAIM))
    return by_name, errors


def _volume_errors(volume: Obj, path: str, pod_name: str | None) -> Iterator[FieldError]:
    name = volume.get("name", "")
    sources = _TEMPLATE_SOURCES if pod_name is None else _POD_SOURCES
    yield from source_errors(volume, path, sources)
    if "iscsi" in volume and storage.is_iscsi_too_long(name, volume["iscsi"]):
        yield FieldError.invalid(f"{path}.name", name, storage.ISCSI_TOO_LONG)
    if "ephemeral" in volume and pod_name and name:
        claim = f"{pod_name}-{name}"
        for detail in names.dns_subdomain_errors(claim):
            yield FieldError.invalid(f"{path}.name", name, f'PVC name "{claim}": {detail}')
    if not name:
        yield FieldError.required(f"{path}.name")
    else:
        yield from storage.label_name_errors(name, f"{path}.name")


def _size_errors(size: str, path: str) -> Iterator[FieldError]:
    if quantity.parse(size).nano < 0:
        yield FieldError.forbidden(path, "SizeLimit field must be a valid resource quantity")


_FILES = ("", mode_errors, item_errors)
_IMAGE: Row = ("pullPolicy", required_one_of("Always", "IfNotPresent", "Never"))
_OWN: dict[str, Check] = {
    "emptyDir": part(("sizeLimit", _size_errors)),
    "secret": part(("secretName", required), _FILES),
    "configMap": part(("name", required), _FILES),
    "persistentVolumeClaim": storage.needs("claimName"),
    "downwardAPI": downward_errors,
    "projected": projected_errors,
    "ephemeral": part(("volumeClaimTemplate", present, claim_template_errors)),
    "image": part(("reference", required), _IMAGE),
}
_ORDER = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs",
    "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte",
    "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume",
    "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
    "csi", "ephemeral", "image",
)  # fmt: skip
"""Upstream's order of sources."""

_POD_SOURCES = {field: _OWN.get(field) or storage.SHARED[field] for field in _ORDER}
_TEMPLATE_SOURCES = {**_POD_SOURCES, "image": part(_IMAGE)}
"""A template may leave the image to what changes it."""
