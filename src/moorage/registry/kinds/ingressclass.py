"""IngressClasses. Source: networking validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy, get_spec

_TYPES = "io.k8s.api.networking.v1"

INGRESS_CLASS = Kind(
    name="IngressClass",
    plural="ingressclasses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.IngressClass"),),
    is_namespaced=False,
    strategy=Strategy(
        spec_of=get_spec,
    ),
)
