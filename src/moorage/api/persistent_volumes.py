"""PersistentVolumes, PersistentVolumeClaims and StorageClasses.

Sources that Moorage does not mount stay raw, so that the node agent can name the one that it
refuses. Source: core/v1 `PersistentVolume`, `PersistentVolumeClaim`; storage/v1 `StorageClass`.
"""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Object, ObjectMeta, ObjectReference, Raw
from moorage.api.pods import NodeSelector
from moorage.api.volumes import HostPathVolumeSource


class VolumeResourceRequirements(Object, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class PersistentVolumeClaimSpec(Object, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: Raw | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: Raw | None = None
    data_source_ref: Raw | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(Object, frozen=True):
    target_volume_attributes_class_name: str = ""
    status: str = ""


class PersistentVolumeClaimStatus(Object, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str] = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class LocalVolumeSource(Object, frozen=True):
    path: str = ""
    fs_type: str | None = None


class CSIPersistentVolumeSource(Object, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Object, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Object, frozen=True):
    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    mount_options: tuple[str, ...] = ()
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    host_path: HostPathVolumeSource | None = None
    local: LocalVolumeSource | None = None
    csi: CSIPersistentVolumeSource | None = None
    gce_persistent_disk: Raw | None = None
    aws_elastic_block_store: Raw | None = None
    glusterfs: Raw | None = None
    nfs: Raw | None = None
    rbd: Raw | None = None
    iscsi: Raw | None = None
    cinder: Raw | None = None
    cephfs: Raw | None = None
    fc: Raw | None = None
    flocker: Raw | None = None
    flex_volume: Raw | None = None
    azure_file: Raw | None = None
    vsphere_volume: Raw | None = None
    quobyte: Raw | None = None
    azure_disk: Raw | None = None
    photon_persistent_disk: Raw | None = None
    portworx_volume: Raw | None = None
    scale_io: Raw | None = field(default=None, name="scaleIO")
    storageos: Raw | None = None


class PersistentVolumeStatus(Object, frozen=True):
    phase: str = ""
    message: str = ""
    reason: str = ""
    last_phase_transition_time: str | None = None


class PersistentVolume(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(Object, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Object, frozen=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str | None = None
    mount_options: tuple[str, ...] = ()
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
