"""Names that several parts of a cluster must agree on."""

from __future__ import annotations

CLUSTER_DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"
"""Who signs service account tokens."""
NODE_CLIENT_NAME = "kube-apiserver-kubelet-client"
"""The common name under which the API server calls node agents."""
