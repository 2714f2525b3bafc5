"""Validation of Deployments. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

import re
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    NOT_NEGATIVE,
    always,
    each_field,
    not_above,
    not_negative,
    update,
    validator,
    whole,
    without_path,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, go_struct
from moorage.apiserver.registry.validation.workload import (
    collision_errors,
    immutable_selector_errors,
    selector_errors,
    workload_template_errors,
)

_PERCENT = re.compile(r"[0-9]+%")
_STRATEGIES = ("Recreate", "RollingUpdate")


def _deadline_errors(spec: Obj) -> list[FieldError]:
    deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
    if deadline is None or deadline > least:
        return []
    detail = "must be greater than minReadySeconds"
    return [FieldError.invalid("spec.progressDeadlineSeconds", deadline, detail)]


def _strategy_errors(strategy: Obj | None, path: str) -> list[FieldError]:
    strategy = strategy or {}
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


_READY = ("updatedReplicas", "readyReplicas", "availableReplicas")

validate_deployment = validator(
    ("spec.replicas", not_negative),
    ("spec", whole(selector_errors), whole(workload_template_errors)),
    ("spec.strategy", always(_strategy_errors)),
    ("spec.minReadySeconds", not_negative),
    ("spec.revisionHistoryLimit", not_negative),
    ("spec.progressDeadlineSeconds", not_negative),
    ("spec", without_path(_deadline_errors)),
)
validate_deployment_update = update(validate_deployment, after=immutable_selector_errors)
validate_deployment_status = update(
    validator(
        ("status.observedGeneration", not_negative),
        *each_field(
            "status", ("replicas", *_READY, "unavailableReplicas", "collisionCount"), not_negative
        ),
        ("status", not_above("replicas", *_READY)),
        ("status", not_above("readyReplicas", "availableReplicas", shown="readyReplicas")),
    ),
    after=collision_errors,
)
