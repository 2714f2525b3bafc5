"""Defaults of a service. Admission allocates addresses and node ports."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj

_AFFINITY_SECONDS = 10800
_EXTERNAL = ("NodePort", "LoadBalancer")


def default_service(service: Obj) -> None:
    """Set the API defaults of a Service."""
    spec = service.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        client_ip = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client_ip.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if kind in _EXTERNAL:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    service.setdefault("status", {}).setdefault("loadBalancer", {})
