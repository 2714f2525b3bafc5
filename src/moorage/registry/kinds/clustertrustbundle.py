"""ClusterTrustBundles. Source: certificates validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, SelectableField, Served

_TYPES = "io.k8s.api.certificates.v1"

CLUSTER_TRUST_BUNDLE = Kind(
    name="ClusterTrustBundle",
    plural="clustertrustbundles",
    served=(
        Served(group="certificates.k8s.io", version="v1", type=f"{_TYPES}.ClusterTrustBundle"),
    ),
    is_namespaced=False,
    selectable=(SelectableField("spec.signerName", ("spec", "signerName")),),
)
