"""ResourceSlices. Source: resource validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, SelectableField, Served, Strategy, get_spec

_TYPES = "io.k8s.api.resource.v1"

RESOURCE_SLICE = Kind(
    name="ResourceSlice",
    plural="resourceslices",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.ResourceSlice"),),
    is_namespaced=False,
    strategy=Strategy(
        spec_of=get_spec,
        returns_deleted=True,
    ),
    selectable=(
        SelectableField("spec.nodeName", ("spec", "nodeName")),
        SelectableField("spec.driver", ("spec", "driver")),
    ),
)
