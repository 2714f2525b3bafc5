"""IPAddresses. Source: networking validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served

_TYPES = "io.k8s.api.networking.v1"

IP_ADDRESS = Kind(
    name="IPAddress",
    plural="ipaddresses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.IPAddress"),),
    is_namespaced=False,
    short_names=("ip",),
)
