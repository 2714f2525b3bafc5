"""Go struct shapes, as upstream's error messages print them under their Go names.

Clients and tests compare these messages, so the few structs they show are listed here with the
zero value Go prints for an unset field.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from moorage.apiserver.registry.kind import Obj

_COMPARED_LINES = 64

Shape = tuple[tuple[str, str, Any], ...]
"""JSON name, Go name, zero value of each field, in Go's order."""

SECURITY_CONTEXT: Shape = (
    ("capabilities", "Capabilities", None),
    ("privileged", "Privileged", None),
    ("seLinuxOptions", "SELinuxOptions", None),
    ("windowsOptions", "WindowsOptions", None),
    ("runAsUser", "RunAsUser", None),
    ("runAsGroup", "RunAsGroup", None),
    ("runAsNonRoot", "RunAsNonRoot", None),
    ("readOnlyRootFilesystem", "ReadOnlyRootFilesystem", None),
    ("allowPrivilegeEscalation", "AllowPrivilegeEscalation", None),
    ("procMount", "ProcMount", None),
    ("seccompProfile", "SeccompProfile", None),
    ("appArmorProfile", "AppArmorProfile", None),
)
CAPABILITIES: Shape = (("add", "Add", None), ("drop", "Drop", None))
STRATEGY: Shape = (("type", "Type", ""), ("rollingUpdate", "RollingUpdate", None))
RESOURCE_CLAIM: Shape = (
    ("name", "Name", ""),
    ("resourceClaimName", "ResourceClaimName", None),
    ("resourceClaimTemplateName", "ResourceClaimTemplateName", None),
)
SERVICE_PORT: Shape = (
    ("name", "Name", ""),
    ("protocol", "Protocol", ""),
    ("appProtocol", "AppProtocol", None),
    ("port", "Port", 0),
    ("targetPort", "TargetPort", 0),
    ("nodePort", "NodePort", 0),
)
VOLUME_CLAIM_SPEC: Shape = (
    ("accessModes", "AccessModes", None),
    ("selector", "Selector", None),
    ("resources", "Resources", None),
    ("volumeName", "VolumeName", ""),
    ("storageClassName", "StorageClassName", None),
    ("volumeMode", "VolumeMode", None),
    ("dataSource", "DataSource", None),
    ("dataSourceRef", "DataSourceRef", None),
    ("volumeAttributesClassName", "VolumeAttributesClassName", None),
)
VOLUME_CLAIM_STATUS: Shape = (
    ("phase", "Phase", ""),
    ("accessModes", "AccessModes", None),
    ("capacity", "Capacity", None),
    ("conditions", "Conditions", None),
    ("allocatedResources", "AllocatedResources", None),
    ("allocatedResourceStatuses", "AllocatedResourceStatuses", None),
    ("currentVolumeAttributesClassName", "CurrentVolumeAttributesClassName", None),
    ("modifyVolumeStatus", "ModifyVolumeStatus", None),
)
RESOURCES: Shape = (("limits", "Limits", None), ("requests", "Requests", None))
TYPED_REFERENCE: Shape = (
    ("apiGroup", "APIGroup", None),
    ("kind", "Kind", ""),
    ("name", "Name", ""),
)

HOST_PATH: Shape = (("path", "Path", ""), ("type", "Type", None))
NFS: Shape = (("server", "Server", ""), ("path", "Path", ""), ("readOnly", "ReadOnly", False))
LOCAL: Shape = (("path", "Path", ""), ("fsType", "FSType", None))
CSI: Shape = (
    ("driver", "Driver", ""),
    ("volumeHandle", "VolumeHandle", ""),
    ("readOnly", "ReadOnly", False),
    ("fsType", "FSType", ""),
    ("volumeAttributes", "VolumeAttributes", None),
    ("controllerPublishSecretRef", "ControllerPublishSecretRef", None),
    ("nodeStageSecretRef", "NodeStageSecretRef", None),
    ("nodePublishSecretRef", "NodePublishSecretRef", None),
    ("controllerExpandSecretRef", "ControllerExpandSecretRef", None),
    ("nodeExpandSecretRef", "NodeExpandSecretRef", None),
)
SECRET_REFERENCE: Shape = (("name", "Name", ""), ("namespace", "Namespace", ""))
CSI_NODE_DRIVER: Shape = (
    ("name", "Name", ""),
    ("nodeID", "NodeID", ""),
    ("topologyKeys", "TopologyKeys", None),
    ("allocatable", "Allocatable", None),
)
NODE_TERM: Shape = (
    ("matchExpressions", "MatchExpressions", None),
    ("matchFields", "MatchFields", None),
)
REQUIREMENT: Shape = (("key", "Key", ""), ("operator", "Operator", ""), ("values", "Values", None))
TRUST_BUNDLE_PROJECTION: Shape = (
    ("name", "Name", None),
    ("signerName", "SignerName", None),
    ("labelSelector", "LabelSelector", None),
    ("optional", "Optional", None),
    ("path", "Path", ""),
)
VOLUME_SOURCE: Shape = (
    ("gcePersistentDisk", "GCEPersistentDisk", None),
    ("awsElasticBlockStore", "AWSElasticBlockStore", None),
    ("hostPath", "HostPath", None),
    ("glusterfs", "Glusterfs", None),
    ("nfs", "NFS", None),
    ("rbd", "RBD", None),
    ("quobyte", "Quobyte", None),
    ("iscsi", "ISCSI", None),
    ("flexVolume", "FlexVolume", None),
    ("cinder", "Cinder", None),
    ("cephfs", "CephFS", None),
    ("fc", "FC", None),
    ("flocker", "Flocker", None),
    ("azureFile", "AzureFile", None),
    ("vsphereVolume", "VsphereVolume", None),
    ("azureDisk", "AzureDisk", None),
    ("photonPersistentDisk", "PhotonPersistentDisk", None),
    ("portworxVolume", "PortworxVolume", None),
    ("scaleIO", "ScaleIO", None),
    ("local", "Local", None),
    ("storageos", "StorageOS", None),
    ("csi", "CSI", None),
)
"""The sources of a PersistentVolume."""


def go_struct(obj: Obj, shape: Shape) -> Obj:
    """Return the object under its Go field names, unset fields included."""
    return {go_name: obj.get(name, zero) for name, go_name, zero in shape}


def security_context(context: Obj) -> Obj:
    """Return a container's security context in its Go shape, capabilities included."""
    shown = go_struct(context, SECURITY_CONTEXT)
    if context.get("capabilities") is not None:
        shown["Capabilities"] = go_struct(context["capabilities"], CAPABILITIES)
    return shown


def volume_claim(claim: Obj) -> Obj:
    """Return a PersistentVolumeClaim in its Go shape: metadata inline, as Go embeds it."""
    status = go_struct(claim.get("status", {}), VOLUME_CLAIM_STATUS)
    spec = volume_claim_spec(claim.get("spec", {}))
    return {**claim.get("metadata", {}), "Spec": spec, "Status": status}


def volume_claim_spec(spec: Obj) -> Obj:
    """Return the specification of a PersistentVolumeClaim in its Go shape."""
    shown = go_struct(spec, VOLUME_CLAIM_SPEC)
    shown["Resources"] = go_struct(spec.get("resources", {}), RESOURCES)
    for field, go_name, shape in (
        ("dataSource", "DataSource", TYPED_REFERENCE),
        ("dataSourceRef", "DataSourceRef", (*TYPED_REFERENCE, ("namespace", "Namespace", None))),
    ):
        if field in spec:
            shown[go_name] = go_struct(spec[field], shape)
    return shown


def volume_source(spec: Obj) -> Obj:
    """Return the sources of a PersistentVolume in their Go shape, rare ones as they are."""
    shown = go_struct(spec, VOLUME_SOURCE)
    for field, go_name, shape in (
        ("hostPath", "HostPath", HOST_PATH),
        ("nfs", "NFS", NFS),
        ("local", "Local", LOCAL),
        ("csi", "CSI", CSI),
    ):
        if field in spec:
            shown[go_name] = go_struct(spec[field], shape)
    for field, go_name, _ in CSI:
        if field.endswith("SecretRef") and field in spec.get("csi", {}):
            shown["CSI"][go_name] = go_struct(spec["csi"][field], SECRET_REFERENCE)
    return shown


def node_selector(selector: Obj) -> Obj:
    """Return a node selector in its Go shape."""
    return {
        "NodeSelectorTerms": [
            {
                go_name: [go_struct(one, REQUIREMENT) for one in term[field]]
                if field in term
                else None
                for field, go_name, _ in NODE_TERM
            }
            for term in selector.get("nodeSelectorTerms", ())
        ]
        or None
    }


def difference(before: Obj, after: Obj) -> str:
    """Return how two structs in their Go shapes differ, line by line, within their first lines.

    Source: apimachinery `util/diff`, a unified diff of indented JSON.
    """
    # Bounded, since the time that a comparison takes grows with the square of the lines.
    lines = difflib.unified_diff(_lines(before), _lines(after), lineterm="")
    # Go's library writes the two lines with file names only if there are any.
    return "".join(f"{line}\n" for line in list(lines)[2:])


def _lines(shown: Obj) -> list[str]:
    return json.dumps(shown, indent=1, ensure_ascii=False).split("\n")[:_COMPARED_LINES]
