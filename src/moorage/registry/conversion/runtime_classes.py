"""RuntimeClass as it was in v1alpha1: everything but metadata under `spec`.

Source: node.k8s.io/v1alpha1 of Kubernetes 1.14 to 1.23. v1beta1 has v1's shape and needs nothing.
"""

from __future__ import annotations

from moorage.registry.kind import Obj

_NESTED = ("overhead", "scheduling")


def from_v1alpha1(obj: Obj) -> Obj:
    spec = obj.get("spec", {})
    flat: Obj = {"metadata": obj["metadata"], "handler": spec.get("runtimeHandler", "")}
    return flat | {field: spec[field] for field in _NESTED if field in spec}


def to_v1alpha1(obj: Obj) -> Obj:
    spec: Obj = {"runtimeHandler": obj["handler"]}
    spec |= {field: obj[field] for field in _NESTED if field in obj}
    return {"metadata": obj["metadata"], "spec": spec}
