"""Deployments and ReplicaSets. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

import re
from typing import Any

from moorage.api import labels
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.validation.go_shapes import STRATEGY, go_struct
from moorage.registry.validation.pods import template_errors
from moorage.registry.validation.scheduling import label_selector_errors

_PERCENT = re.compile(r"[0-9]+%")
_STRATEGIES = ("Recreate", "RollingUpdate")
_NOT_NEGATIVE = "must be greater than or equal to 0"


def validate_deployment(deployment: Obj) -> list[FieldError]:
    spec = deployment["spec"]
    errors = _count_errors(spec, "replicas")
    errors += _selector_errors(spec)
    errors += _template_errors(spec)
    errors += _strategy_errors(spec.get("strategy", {}), "spec.strategy")
    errors += _count_errors(spec, "minReadySeconds")
    errors += _count_errors(spec, "revisionHistoryLimit")
    errors += _count_errors(spec, "progressDeadlineSeconds")
    deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
    if deadline is not None and deadline <= least:
        errors.append(
            FieldError.invalid(
                "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
            )
        )
    return errors


def validate_deployment_update(new: Obj, old: Obj) -> list[FieldError]:
    return validate_deployment(new) + _immutable_selector_errors(new, old)


def validate_deployment_status(new: Obj, old: Obj) -> list[FieldError]:
    status, was = new.get("status", {}), old.get("status", {})
    errors = _status_count_errors(
        status,
        ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas",
         "availableReplicas", "unavailableReplicas", "collisionCount"),
    )  # fmt: skip
    for field in ("updatedReplicas", "readyReplicas", "availableReplicas"):
        if status.get(field, 0) > status.get("replicas", 0):
            errors.append(_greater(field, status))
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        errors.append(
            FieldError.invalid(
                "status.availableReplicas",
                status["availableReplicas"],
                "cannot be greater than readyReplicas",
            )
        )
    if was.get("collisionCount", 0) > status.get("collisionCount", 0):
        errors.append(
            FieldError.invalid(
                "status.collisionCount", status.get("collisionCount", 0), "cannot be decremented"
            )
        )
    return errors


def validate_replica_set(replica_set: Obj) -> list[FieldError]:
    spec = replica_set["spec"]
    errors = _count_errors(spec, "replicas")
    errors += _count_errors(spec, "minReadySeconds")
    return errors + _selector_errors(spec) + _template_errors(spec)


def validate_replica_set_update(new: Obj, old: Obj) -> list[FieldError]:
    return validate_replica_set(new) + _immutable_selector_errors(new, old)


def validate_replica_set_status(new: Obj, old: Obj) -> list[FieldError]:
    del old
    status = new.get("status", {})
    errors = _status_count_errors(
        status,
        ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
         "observedGeneration"),
    )  # fmt: skip
    for field in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
        if status.get(field, 0) > status.get("replicas", 0):
            errors.append(_greater(field, status))
    return errors


def _greater(field: str, status: Obj) -> FieldError:
    return FieldError.invalid(
        f"status.{field}", status.get(field, 0), "cannot be greater than status.replicas"
    )


def _count_errors(spec: Obj, field: str) -> list[FieldError]:
    value = spec.get(field, 0)
    return [] if value >= 0 else [FieldError.invalid(f"spec.{field}", value, _NOT_NEGATIVE)]


def _status_count_errors(status: Obj, fields: tuple[str, ...]) -> list[FieldError]:
    return [
        FieldError.invalid(f"status.{field}", status[field], _NOT_NEGATIVE)
        for field in fields
        if status.get(field, 0) < 0
    ]


def _selector_errors(spec: Obj) -> list[FieldError]:
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


def _template_errors(spec: Obj) -> list[FieldError]:
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


def _strategy_errors(strategy: Obj, path: str) -> list[FieldError]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind not in _STRATEGIES:
        return [FieldError.not_supported(path, go_struct(strategy, STRATEGY), _STRATEGIES)]
    if kind == "Recreate":
        if rolling is None:
            return []
        return [
            FieldError.forbidden(
                f"{path}.rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            )
        ]
    if rolling is None:
        return [FieldError.required(f"{path}.rollingUpdate", "this should be defaulted and never "
                                    "be nil")]  # fmt: skip
    at = f"{path}.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    errors = _amount_errors(unavailable, f"{at}.maxUnavailable")
    errors += _amount_errors(surge, f"{at}.maxSurge")
    if not errors and _number(unavailable) == 0 and _number(surge) == 0:
        errors.append(
            FieldError.invalid(
                f"{at}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"
            )
        )
    if isinstance(unavailable, str) and not errors and _number(unavailable) > 100:
        errors.append(
            FieldError.invalid(f"{at}.maxUnavailable", unavailable, "must not be greater than 100%")
        )
    return errors


def _amount_errors(value: Any, path: str) -> list[FieldError]:
    """A whole number or a percentage."""
    if isinstance(value, int):
        return [] if value >= 0 else [FieldError.invalid(path, value, _NOT_NEGATIVE)]
    if _PERCENT.fullmatch(value):
        return []
    return [
        FieldError.invalid(
            path,
            value,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')",
        )
    ]


def _number(value: int | str) -> int:
    # Any percentage of ten digits is above 100.
    return value if isinstance(value, int) else int(value[:-1].lstrip("0")[:10] or "0")


def _immutable_selector_errors(new: Obj, old: Obj) -> list[FieldError]:
    selector = new["spec"].get("selector")
    if selector == old["spec"].get("selector"):
        return []
    return [FieldError.invalid("spec.selector", selector, "field is immutable")]
