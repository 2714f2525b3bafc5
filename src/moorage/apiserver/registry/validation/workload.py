"""Workload validation shared by several kinds: counts, selector, pod template.

Source: apps validation of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from moorage.api import labels
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import NOT_NEGATIVE, Check
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_MALFORMED = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)

_PERCENT = re.compile(r"[0-9]+%")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def amount_errors(amount: int | str, path: str) -> list[FieldError]:
    """Return the errors of an amount: a number that is not negative, or a percentage."""
    if isinstance(amount, int):
        return [] if amount >= 0 else [FieldError.invalid(path, amount, NOT_NEGATIVE)]
    return [] if _PERCENT.fullmatch(amount) else [FieldError.invalid(path, amount, _MALFORMED)]


def above_all_errors(amount: int | str, path: str) -> list[FieldError]:
    """Return the error of a percentage above 100."""
    if isinstance(amount, int) or not _PERCENT.fullmatch(amount) or number_of(amount) <= 100:
        return []
    return [FieldError.invalid(path, amount, "must not be greater than 100%")]


def number_of(amount: int | str) -> int:
    """Return an amount without its percent sign; 0 for text that is no number."""
    if isinstance(amount, int):
        return amount
    if _PERCENT.fullmatch(amount):
        # Any percentage of ten digits is above 100.
        return int(amount[:-1].lstrip("0")[:10] or "0")
    return int(amount) if _NUMBER.fullmatch(amount) else 0


def count_errors(spec: Obj, field: str) -> list[FieldError]:
    value = spec.get(field, 0)
    return [] if value >= 0 else [FieldError.invalid(f"spec.{field}", value, NOT_NEGATIVE)]


def collision_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Return the error of a `status.collisionCount` that is lower than before."""
    count = new.get("status", {}).get("collisionCount", 0)
    if count >= old.get("status", {}).get("collisionCount", 0):
        return []
    return [FieldError.invalid("status.collisionCount", count, "cannot be decremented")]


def selector_errors(spec: Obj, owner: str = "deployment") -> list[FieldError]:
    """Return the errors of `spec.selector`, which must be present and not empty."""
    selector = spec.get("selector")
    if selector is None:
        return [FieldError.required("spec.selector")]
    errors = label_selector_errors(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(
            FieldError.invalid("spec.selector", selector, f"empty selector is invalid for {owner}")
        )
    return errors


def workload_template_errors(spec: Obj) -> list[FieldError]:
    """Return the errors of the pod template, whose labels must match `spec.selector`."""
    template = spec.get("template", {})
    errors = template_label_errors(spec)
    errors += template_errors(template, "spec.template")
    return errors + always_running_errors(template, "ReplicaSet")


def template_label_errors(spec: Obj) -> list[FieldError]:
    """Return the error of template labels that `spec.selector` does not match."""
    own = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if _fits(spec.get("selector"), own):
        return []
    return [mismatched_labels(own)]


def mismatched_labels(labels_of_template: dict[str, str]) -> FieldError:
    return FieldError.invalid(
        "spec.template.metadata.labels",
        labels_of_template or None,
        "`selector` does not match template `labels`",
    )


def always_running_errors(template: Obj, owner: str) -> list[FieldError]:
    """Return the errors of a template whose pods would end; `owner` is the workload's kind."""
    pod, errors = template.get("spec", {}), []
    policy = pod.get("restartPolicy")
    if policy and policy != "Always":
        errors.append(
            FieldError.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
        )
    if "activeDeadlineSeconds" in pod:
        errors.append(
            FieldError.forbidden(
                "spec.template.spec.activeDeadlineSeconds",
                f"activeDeadlineSeconds in {owner} is not Supported",
            )
        )
    return errors


def never_ending(owner: str) -> Check:
    """Return the check of a template by `always_running_errors`."""
    return lambda template, _: always_running_errors(template, owner)


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
