"""DeviceTaintRules. Source: resource validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, get_spec, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.resource.v1"

DEVICE_TAINT_RULE = Kind(
    name="DeviceTaintRule",
    plural="devicetaintrules",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.DeviceTaintRule"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
        returns_deleted=True,
    ),
    subresources=status_subresource(),
)
