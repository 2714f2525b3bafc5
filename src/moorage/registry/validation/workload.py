"""Workload validation shared by several kinds: counts, selector, pod template.

Source: apps validation of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api import labels
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.validation.pod_spec import template_errors
from moorage.registry.validation.scheduling import label_selector_errors

NOT_NEGATIVE = "must be greater than or equal to 0"


def above_replicas(field: str, status: Obj) -> FieldError:
    return FieldError.invalid(
        f"status.{field}", status.get(field, 0), "cannot be greater than status.replicas"
    )


def count_errors(spec: Obj, field: str) -> list[FieldError]:
    value = spec.get(field, 0)
    return [] if value >= 0 else [FieldError.invalid(f"spec.{field}", value, NOT_NEGATIVE)]


def status_count_errors(status: Obj, fields: tuple[str, ...]) -> list[FieldError]:
    return [
        FieldError.invalid(f"status.{field}", status[field], NOT_NEGATIVE)
        for field in fields
        if status.get(field, 0) < 0
    ]


def selector_errors(spec: Obj) -> list[FieldError]:
    """Return the errors of `spec.selector`, which must be present and not empty."""
    selector = spec.get("selector")
    if selector is None:
        return [FieldError.required("spec.selector")]
    errors = label_selector_errors(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(
            FieldError.invalid(
                "spec.selector", selector, "empty selector is invalid for deployment"
            )
        )
    return errors


def workload_template_errors(spec: Obj) -> list[FieldError]:
    """Return the errors of the pod template, whose labels must match `spec.selector`."""
    template = spec.get("template", {})
    errors: list[FieldError] = []
    selector = spec.get("selector")
    own = template.get("metadata", {}).get("labels", {})
    if not _fits(selector, own):
        errors.append(
            FieldError.invalid(
                "spec.template.metadata.labels",
                own or None,
                "`selector` does not match template `labels`",
            )
        )
    errors += template_errors(template, "spec.template")
    policy = template.get("spec", {}).get("restartPolicy")
    if policy and policy != "Always":
        errors.append(
            FieldError.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
        )
    if "activeDeadlineSeconds" in template.get("spec", {}):
        errors.append(
            FieldError.forbidden(
                "spec.template.spec.activeDeadlineSeconds",
                "activeDeadlineSeconds in ReplicaSet is not Supported",
            )
        )
    return errors


def _fits(selector: Obj | None, own: dict[str, str]) -> bool:
    if selector is None:
        return False  # No selector selects nothing.
    try:
        return labels.from_object(selector).matches(own)
    except ValueError:
        return True  # The selector itself is complained of.


def immutable_selector_errors(new: Obj, old: Obj) -> list[FieldError]:
    selector = new["spec"].get("selector")
    if selector == old["spec"].get("selector"):
        return []
    return [FieldError.invalid("spec.selector", selector, "field is immutable")]
