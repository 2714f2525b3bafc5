"""Volume validation: each volume of a pod has exactly one well-formed source.

Source: core validation `ValidateVolumes` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation import volume_sources as storage
from moorage.apiserver.registry.validation.projections import (
    downward_errors,
    item_errors,
    mode_errors,
    projected_errors,
)
from moorage.apiserver.registry.validation.volume_claims import claim_template_errors
from moorage.apiserver.registry.validation.volume_sources import Source, required, source_errors

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
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


def _empty_dir_errors(source: Obj, path: str) -> Iterator[FieldError]:
    size = source.get("sizeLimit")
    if size is not None and quantity.parse(size).nano < 0:
        detail = "SizeLimit field must be a valid resource quantity"
        yield FieldError.forbidden(f"{path}.sizeLimit", detail)


def _secret_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from required("secretName")(source, path)
    yield from mode_errors(source, path)
    yield from item_errors(source, path)


def _config_map_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from required("name")(source, path)
    yield from mode_errors(source, path)
    yield from item_errors(source, path)


def _ephemeral_errors(source: Obj, path: str) -> Iterator[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield FieldError.required(f"{path}.volumeClaimTemplate")
    else:
        yield from claim_template_errors(template, f"{path}.volumeClaimTemplate")


def _image_errors(source: Obj, path: str) -> Iterator[FieldError]:
    policy, at = source.get("pullPolicy", ""), f"{path}.pullPolicy"
    if not policy:
        yield FieldError.required(at)
    elif policy not in _PULL_POLICIES:
        yield FieldError.not_supported(at, policy, _PULL_POLICIES)


def _pod_image_errors(source: Obj, path: str) -> Iterator[FieldError]:
    yield from required("reference")(source, path)
    yield from _image_errors(source, path)


_ALL_BUT_IMAGES = (
    Source("emptyDir", _empty_dir_errors),
    Source("hostPath", storage.host_path_errors),
    Source("gitRepo", storage.git_repo_errors),
    Source("gcePersistentDisk", storage.gce_disk_errors, at="persistentDisk"),
    Source("awsElasticBlockStore", storage.aws_disk_errors),
    Source("secret", _secret_errors),
    Source("nfs", storage.nfs_errors),
    Source("iscsi", storage.iscsi_errors),
    Source("glusterfs", storage.glusterfs_errors),
    Source("flocker", storage.flocker_errors),
    Source("persistentVolumeClaim", required("claimName")),
    Source("rbd", storage.rbd_errors),
    Source("cinder", storage.cinder_errors),
    Source("cephfs", storage.cephfs_errors, second_at="cephFS"),
    Source("quobyte", storage.quobyte_errors),
    Source("downwardAPI", downward_errors, second_at="downwarAPI"),
    Source("fc", storage.fc_errors),
    Source("flexVolume", storage.flex_errors),
    Source("configMap", _config_map_errors),
    Source("azureFile", storage.azure_file_errors),
    Source("vsphereVolume", storage.vsphere_errors),
    Source("photonPersistentDisk", storage.photon_errors),
    Source("portworxVolume", storage.portworx_errors),
    Source("azureDisk", storage.azure_disk_errors),
    Source("storageos", storage.storageos_errors),
    Source("projected", projected_errors),
    Source("scaleIO", storage.scale_io_errors),
    Source("csi", storage.csi_errors),
    Source("ephemeral", _ephemeral_errors),
)
"""Sources in upstream's order. Names that differ from the field's are upstream's."""

_POD_SOURCES = (*_ALL_BUT_IMAGES, Source("image", _pod_image_errors))
_TEMPLATE_SOURCES = (*_ALL_BUT_IMAGES, Source("image", _image_errors))
"""A template may leave the image to what changes it."""
