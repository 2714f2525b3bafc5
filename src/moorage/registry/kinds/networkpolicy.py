"""NetworkPolicies. Source: networking validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy, get_spec

_TYPES = "io.k8s.api.networking.v1"

NETWORK_POLICY = Kind(
    name="NetworkPolicy",
    plural="networkpolicies",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.NetworkPolicy"),),
    short_names=("netpol",),
    strategy=Strategy(
        spec_of=get_spec,
    ),
)
