"""Validation of Deployments. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

import re
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, go_struct
from moorage.apiserver.registry.validation.workload import (
    NOT_NEGATIVE,
    above_replicas,
    count_errors,
    immutable_selector_errors,
    selector_errors,
    status_count_errors,
    workload_template_errors,
)

_PERCENT = re.compile(r"[0-9]+%")
_STRATEGIES = ("Recreate", "RollingUpdate")


def validate_deployment(deployment: Obj) -> list[FieldError]:
    """Return the errors of a new Deployment."""
    spec = deployment["spec"]
    errors = count_errors(spec, "replicas")
    errors += selector_errors(spec)
    errors += workload_template_errors(spec)
    errors += _strategy_errors(spec.get("strategy", {}), "spec.strategy")
    errors += count_errors(spec, "minReadySeconds")
    errors += count_errors(spec, "revisionHistoryLimit")
    errors += count_errors(spec, "progressDeadlineSeconds")
    deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
    if deadline is not None and deadline <= least:
        errors.append(
            FieldError.invalid(
                "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
            )
        )
    return errors


def validate_deployment_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a Deployment."""
    return validate_deployment(new) + immutable_selector_errors(new, old)


def validate_deployment_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a Deployment."""
    status, was = new.get("status", {}), old.get("status", {})
    errors = status_count_errors(
        status,
        ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas",
         "availableReplicas", "unavailableReplicas", "collisionCount"),
    )  # fmt: skip
    for field in ("updatedReplicas", "readyReplicas", "availableReplicas"):
        if status.get(field, 0) > status.get("replicas", 0):
            errors.append(above_replicas(field, status))
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
        return [] if value >= 0 else [FieldError.invalid(path, value, NOT_NEGATIVE)]
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
