"""Deployments, in apps/v1 and in extensions/v1beta1."""

from __future__ import annotations

import re
from typing import Any

from moorage.api import labels
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.shared import READY
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    column,
    containers_of,
    printer,
    selector_column,
)
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
from moorage.apiserver.registry.defaults import default_pod_template
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    scale_subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec_and_labels, keep_status
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, go_struct
from moorage.apiserver.registry.validation.workload import (
    collision_errors,
    immutable_selector_errors,
    selector_errors,
    workload_template_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_FOR_EVER = 2147483647
ROLLBACK_ANNOTATION = "deprecated.deployment.rollback.to"
_STRATEGIES = ("Recreate", "RollingUpdate")
_READY = ("updatedReplicas", "readyReplicas", "availableReplicas")
_TYPES = "io.k8s.api.apps.v1"


def default_deployment(deployment: Obj) -> None:
    """apps/v1."""
    _default_deployment(
        deployment, surge="25%", unavailable="25%", history=10, deadline_seconds=600
    )


def default_extensions_deployment(deployment: Obj) -> None:
    """extensions/v1beta1: selector and labels from the template, one pod at a time, no deadline."""
    spec = deployment.setdefault("spec", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if labels:
        spec.setdefault("selector", {"matchLabels": dict(labels)})
        if not deployment["metadata"].get("labels"):
            deployment["metadata"]["labels"] = dict(labels)
    _default_deployment(
        deployment, surge=1, unavailable=1, history=_FOR_EVER, deadline_seconds=_FOR_EVER
    )


def _default_deployment(
    deployment: Obj,
    *,
    surge: int | str,
    unavailable: int | str,
    history: int,
    deadline_seconds: int,
) -> None:
    spec = deployment.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", unavailable)
        rolling.setdefault("maxSurge", surge)
    spec.setdefault("revisionHistoryLimit", history)
    spec.setdefault("progressDeadlineSeconds", deadline_seconds)
    default_pod_template(spec.setdefault("template", {}))


_REVISION = re.compile(r"0|-?[1-9][0-9]{0,17}")


def from_extensions(obj: Obj) -> Obj:
    """Convert from extensions/v1beta1."""
    converted = {**obj, "spec": dict(obj["spec"])}
    default_extensions_deployment(converted)
    rollback = converted["spec"].pop("rollbackTo", None)
    if rollback is not None:
        metadata = dict(converted["metadata"])
        annotations = dict(metadata.get("annotations", {}))
        annotations[ROLLBACK_ANNOTATION] = str(rollback.get("revision", 0))
        converted["metadata"] = {**metadata, "annotations": annotations}
    return converted


def to_extensions(obj: Obj) -> Obj:
    """Convert to extensions/v1beta1."""
    annotations = obj["metadata"].get("annotations", {})
    # A value of another origin is no revision and stays as it is.
    if not _REVISION.fullmatch(annotations.get(ROLLBACK_ANNOTATION, "")):
        return obj
    kept = {key: value for key, value in annotations.items() if key != ROLLBACK_ANNOTATION}
    metadata = {**obj["metadata"], "annotations": kept}
    if not kept:
        del metadata["annotations"]
    revision = int(annotations[ROLLBACK_ANNOTATION])
    rollback = {"revision": revision} if revision else {}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "rollbackTo": rollback}}


_PERCENT = re.compile(r"[0-9]+%")


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

PRINTER = printer(
    NAME,
    READY,
    column("Up-to-date", "status.updatedReplicas", of=f"{_TYPES}.DeploymentStatus", absent=0),
    column("Available", "status.availableReplicas", of=f"{_TYPES}.DeploymentStatus", absent=0),
    AGE,
    *containers_of(),
    selector_column(f"{_TYPES}.DeploymentSpec", lambda selector: str(labels.from_object(selector))),
)


def _spec_and_annotations(obj: Obj) -> object:
    """A Deployment's generation also counts annotations, which revisions are noted in."""
    return obj.get("spec"), obj["metadata"].get("annotations")


DEPLOYMENT = Kind(
    name="Deployment",
    plural="deployments",
    served=(
        Served("apps", "v1", f"{_TYPES}.Deployment"),
        Served(
            "extensions",
            "v1beta1",
            "io.k8s.api.extensions.v1beta1.Deployment",
            to_storage=from_extensions,
            from_storage=to_extensions,
            warning=(
                "extensions/v1beta1 Deployment is deprecated in v1.9+, unavailable in v1.16+; "
                "use apps/v1 Deployment"
            ),
        ),
    ),
    short_names=("deploy",),
    categories=("all",),
    strategy=Strategy(
        default=default_deployment,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_deployment,
        validate_update=validate_deployment_update,
        parts={"status": PartRules(keep_spec_and_labels, validate_deployment_status)},
        warn=warn_workload,
        spec_of=_spec_and_annotations,
    ),
    printer=PRINTER,
    subresources={**status_subresource(), **scale_subresource()},
)
