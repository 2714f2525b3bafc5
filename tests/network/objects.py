"""Services, slices, policies and pods for tests, from as few words as they need."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from moorage.api.services import Service
from moorage.network.objects import EndpointSlice, NetworkPolicy
from moorage.network.policies.peers import NetworkPod
from moorage.network.services.endpoints import Place

PODS = ipaddress.ip_network("10.244.0.0/24")
SERVICES = ipaddress.ip_network("10.96.0.0/16")
HERE = Place("n1", "z1")


def a_service(name: str = "web", ip: str = "10.96.0.7", **spec: Any) -> Service:
    """A Service with port 80 of TCP and one cluster IP; `None` makes it headless."""
    body = {
        "type": "ClusterIP",
        "clusterIP": ip,
        "ports": [{"port": 80, "protocol": "TCP"}],
        **spec,
    }
    status = body.pop("status", {})
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": body.pop("labels", {}),
        "creationTimestamp": body.pop("created", None),
    }
    return msgspec.convert({"metadata": metadata, "spec": body, "status": status}, Service)


def a_slice(
    *endpoints: str | dict[str, Any],
    service: str = "web",
    ports: tuple[dict[str, Any], ...] = ({"port": 8080},),
    kind: str = "IPv4",
    labels: Mapping[str, str] = MappingProxyType({}),
) -> EndpointSlice:
    """A slice of endpoints on this node, each an address or an object."""
    objects = [
        {"addresses": [one], "nodeName": "n1"} if isinstance(one, str) else one for one in endpoints
    ]
    metadata = {
        "name": f"{service}-x",
        "namespace": "default",
        "labels": {"kubernetes.io/service-name": service, **labels},
    }
    body = {"metadata": metadata, "addressType": kind, "endpoints": objects, "ports": list(ports)}
    return msgspec.convert(body, EndpointSlice)


def an_endpoint(address: str, node: str = "n1", **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "nodeName": node, "conditions": conditions}


def a_policy(name: str = "p", namespace: str = "default", **spec: Any) -> NetworkPolicy:
    """A policy that selects all pods of its namespace; its types are those of its rules."""
    types = [kind.title() for kind in ("ingress", "egress") if kind in spec] or ["Ingress"]
    body = {"podSelector": {}, "policyTypes": types, **spec}
    metadata = {"name": name, "namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": body}, NetworkPolicy)


def a_pod(
    address: str, namespace: str = "default", *ports: tuple[str, str, int], **labels: str
) -> NetworkPod:
    """A pod, by its address, which is its key too."""
    return NetworkPod(address, namespace, labels, (address,), ports)
