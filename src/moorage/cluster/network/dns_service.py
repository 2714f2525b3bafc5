"""Service of the cluster DNS, under the name that charts and clients know.

Applied by each start, since the DNS has another address where the pods have another network.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moorage.cluster.settings import Settings
from moorage.network.objects import ENDPOINT_SLICES, SERVICE_NAME
from moorage.wire.client.resources import SERVICES, Resource
from moorage.wire.client.rest import Client

NAMESPACE: Final = "kube-system"
NAME: Final = "kube-dns"
_MANAGER: Final = "moorage"
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_PORTS: Final = (("dns", "UDP"), ("dns-tcp", "TCP"))
_PORT: Final = 53
_LABELS: Final = {
    "k8s-app": "kube-dns",
    "kubernetes.io/cluster-service": "true",
    "kubernetes.io/name": "CoreDNS",
}


async def apply_dns_service(client: Client, settings: Settings) -> None:
    """Create or correct Service and endpoint. Raises StatusError, UnreachableError."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {
            "clusterIP": settings.dns_ip,
            "ports": [{"name": name, "protocol": kind, "port": _PORT} for name, kind in _PORTS],
        },
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "labels": {SERVICE_NAME: NAME, _MANAGED_BY: _MANAGER}},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [settings.dns_address],
                "conditions": {"ready": True},
                "nodeName": settings.node_name,
            }
        ],
        "ports": [{"name": name, "protocol": kind, "port": _PORT} for name, kind in _PORTS],
    }
    await _apply(client, SERVICES, service)
    await _apply(client, ENDPOINT_SLICES, endpoints)


async def _apply(client: Client, resource: Resource[Any], obj: dict[str, Any]) -> None:
    await client.request(
        "PATCH",
        resource.path(NAMESPACE, NAME),
        body=msgspec.json.encode(obj),
        query={"fieldManager": _MANAGER, "force": "true"},
        content_type="application/apply-patch+yaml",
    )
