"""Subresource validation: bodies of bindings and scales."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj


def validate_binding(binding: Obj) -> list[FieldError]:
    """Validate a core/v1 `Binding`: its target must be a node."""
    target = binding.get("target", {})
    errors: list[FieldError] = []
    if target.get("kind", "") not in ("", "Node"):
        errors.append(FieldError.not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(FieldError.required("target.name"))
    return errors


def validate_scale(scale: Obj) -> list[FieldError]:
    """Validate an autoscaling/v1 `Scale`: replicas must not be negative."""
    replicas = scale.get("spec", {}).get("replicas", 0)
    if replicas >= 0:
        return []
    return [FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
