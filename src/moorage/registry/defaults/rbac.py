"""Role bindings: which group a role or a subject is of."""

from __future__ import annotations

from moorage.registry.kind import Obj

GROUP = "rbac.authorization.k8s.io"


def default_role_binding(binding: Obj) -> None:
    _default_binding(binding)
    namespace = binding["metadata"].get("namespace")
    for subject in binding.get("subjects", ()):
        if subject.get("kind") == "ServiceAccount" and namespace:
            subject.setdefault("namespace", namespace)


def default_cluster_role_binding(binding: Obj) -> None:
    _default_binding(binding)


def _default_binding(binding: Obj) -> None:
    reference = binding.get("roleRef")
    if reference is not None and not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in binding.get("subjects", ()):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP
