"""Preparation of Services: fields that a change of type makes meaningless.

Such a field goes unless the client changed it too, which validation then refuses. Source: core
registry strategy of Services of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.preparation import keep_status

_BALANCED = "LoadBalancer"


def prepare_service_create(service: Obj) -> None:
    """Reset the fields of a new Service that clients may not set."""
    service["status"] = {"loadBalancer": {}}


def prepare_service_update(new: Obj, old: Obj) -> None:
    """Keep the status, and drop fields that the Service's type does not have any more."""
    keep_status(new, old)
    spec, was = new["spec"], old["spec"]
    if _has_addresses(was) and not _has_addresses(spec):
        _drop_unchanged(spec, was, "ipFamilies", "ipFamilyPolicy")
    if _is_health_checked(was) and not _is_health_checked(spec):
        _drop_unchanged(spec, was, "healthCheckNodePort")
    if _is_balanced(was) and not _is_balanced(spec):
        _drop_unchanged(spec, was, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_externally_accessible(was) and not is_externally_accessible(spec):
        _drop_unchanged(spec, was, "externalTrafficPolicy")
    if not _is_balanced(spec):
        new["status"] = {**new.get("status", {}), "loadBalancer": {}}


def _drop_unchanged(spec: Obj, was: Obj, *fields: str) -> None:
    for field in fields:
        if spec.get(field) == was.get(field):
            spec.pop(field, None)


def _has_addresses(spec: Obj) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _is_balanced(spec: Obj) -> bool:
    return bool(spec.get("type") == _BALANCED)


def _is_health_checked(spec: Obj) -> bool:
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


def is_externally_accessible(spec: Obj) -> bool:
    """Return whether a Service can be reached from outside the cluster."""
    if spec.get("type") in (_BALANCED, "NodePort"):
        return True
    return spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
