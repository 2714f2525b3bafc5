"""Go struct shapes, as upstream's error messages print them under their Go names.

Clients and tests compare these messages, so the few structs they show are listed here with the
zero value Go prints for an unset field.
"""

from __future__ import annotations

from typing import Any

from moorage.registry.kind import Obj

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
    spec = claim.get("spec", {})
    shown = go_struct(spec, VOLUME_CLAIM_SPEC)
    shown["Resources"] = go_struct(spec.get("resources", {}), RESOURCES)
    for field, go_name, shape in (
        ("dataSource", "DataSource", TYPED_REFERENCE),
        ("dataSourceRef", "DataSourceRef", (*TYPED_REFERENCE, ("namespace", "Namespace", None))),
    ):
        if field in spec:
            shown[go_name] = go_struct(spec[field], shape)
    status = go_struct(claim.get("status", {}), VOLUME_CLAIM_STATUS)
    return {**claim.get("metadata", {}), "Spec": shown, "Status": status}
