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


def go_struct(obj: Obj, shape: Shape) -> Obj:
    """Return the object under its Go field names, unset fields included."""
    return {go_name: obj.get(name, zero) for name, go_name, zero in shape}


def security_context(context: Obj) -> Obj:
    """Return a container's security context in its Go shape, capabilities included."""
    shown = go_struct(context, SECURITY_CONTEXT)
    if context.get("capabilities") is not None:
        shown["Capabilities"] = go_struct(context["capabilities"], CAPABILITIES)
    return shown
