"""Defaults of role bindings: the API groups of the role and of the subjects."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj

GROUP = "rbac.authorization.k8s.io"


def default_binding(binding: Obj) -> None:
    """Set the API defaults of a binding."""
    reference = binding.get("roleRef")
    if reference is not None and not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in binding.get("subjects", ()):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP
