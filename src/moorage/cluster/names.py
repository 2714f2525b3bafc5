"""Names that several parts of a cluster share."""

from __future__ import annotations

CLUSTER_DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"
"""The issuer of service account tokens."""
FRONT_PROXY_NAME = "front-proxy-client"
"""The common name of the API server's certificate for calls to extension servers."""
NODE_CLIENT_NAME = "kube-apiserver-kubelet-client"
"""The common name of the API server's certificate for calls to node agents."""
