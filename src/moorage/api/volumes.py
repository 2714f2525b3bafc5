"""Volumes of a pod.

Volume types that Moorage does not mount stay raw, so that the node agent can name the one that it
refuses. Source: core/v1 `Volume`.
"""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Object, Raw


class HostPathVolumeSource(Object, frozen=True):
    path: str = ""
    type: str | None = None


class EmptyDirVolumeSource(Object, frozen=True):
    medium: str = ""
    size_limit: str | None = None


class KeyToPath(Object, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class SecretVolumeSource(Object, frozen=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class ObjectFieldSelector(Object, frozen=True):
    api_version: str = ""
    field_path: str = ""


class ResourceFieldSelector(Object, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: str = ""


class DownwardAPIVolumeFile(Object, frozen=True):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardAPIVolumeSource(Object, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: int | None = None


class ConfigMapVolumeSource(Object, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class SecretProjection(Object, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardAPIProjection(Object, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()


class ConfigMapProjection(Object, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class ServiceAccountTokenProjection(Object, frozen=True):
    audience: str = ""
    expiration_seconds: int | None = None
    path: str = ""


class VolumeProjection(Object, frozen=True):
    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = field(default=None, name="downwardAPI")
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: Raw | None = None
    pod_certificate: Raw | None = None


class ProjectedVolumeSource(Object, frozen=True):
    sources: tuple[VolumeProjection, ...] = ()
    default_mode: int | None = None


class ImageVolumeSource(Object, frozen=True):
    reference: str = ""
    pull_policy: str = ""


class PersistentVolumeClaimVolumeSource(Object, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Object, frozen=True):
    volume_claim_template: Raw | None = None


class Volume(Object, frozen=True):
    name: str = ""
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: Raw | None = None
    aws_elastic_block_store: Raw | None = None
    git_repo: Raw | None = None
    secret: SecretVolumeSource | None = None
    nfs: Raw | None = None
    iscsi: Raw | None = None
    glusterfs: Raw | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: Raw | None = None
    flex_volume: Raw | None = None
    cinder: Raw | None = None
    cephfs: Raw | None = None
    flocker: Raw | None = None
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    fc: Raw | None = None
    azure_file: Raw | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: Raw | None = None
    quobyte: Raw | None = None
    azure_disk: Raw | None = None
    photon_persistent_disk: Raw | None = None
    projected: ProjectedVolumeSource | None = None
    portworx_volume: Raw | None = None
    scale_io: Raw | None = field(default=None, name="scaleIO")
    storageos: Raw | None = None
    csi: Raw | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
