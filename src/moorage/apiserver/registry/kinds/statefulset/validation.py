"""Validation of StatefulSets. Source: apps validation of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api import labels, names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    NOT_NEGATIVE,
    each_field,
    not_above,
    not_negative,
    update,
    validator,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, Shape, go_struct, volume_claim
from moorage.apiserver.registry.validation.pod_spec import template_errors, template_metadata_errors
from moorage.apiserver.registry.validation.rollout import above_all_errors, amount_errors, number_of
from moorage.apiserver.registry.validation.volume_claims import claim_spec_errors
from moorage.apiserver.registry.validation.workload import (
    always_running_errors,
    collision_errors,
    count_errors,
    mismatched_labels,
    selector_errors,
)

_MANAGEMENT = ("OrderedReady", "Parallel")
_RETENTION = ("Retain", "Delete")
_ROLLING: Shape = (("partition", "Partition", 0), ("maxUnavailable", "MaxUnavailable", None))
_COUNTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def validate_stateful_set(stateful_set: Obj) -> list[FieldError]:
    """Return the errors of a new StatefulSet."""
    return _spec_errors(stateful_set["spec"], is_new=True)


def validate_stateful_set_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update; a template is not validated if the old object was invalid."""
    spec, was = new["spec"], old["spec"]
    errors = _spec_errors(spec)
    if errors and _spec_errors(was):
        errors = _spec_errors(spec, checks_template=False)
    for field in ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"):
        if spec.get(field) != was.get(field):
            errors.append(
                FieldError.invalid(f"spec.{field}", _shown(spec, field), "field is immutable")
            )
    return errors


validate_stateful_set_status = update(
    validator(
        *each_field(
            "status", ("replicas", *_COUNTS, "observedGeneration", "collisionCount"), not_negative
        ),
        ("status", not_above("replicas", *_COUNTS)),
        ("status", not_above("readyReplicas", "availableReplicas")),
    ),
    after=collision_errors,
)


def _spec_errors(
    spec: Obj, *, is_new: bool = False, checks_template: bool = True
) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = spec.get("podManagementPolicy", "")
    if policy not in _MANAGEMENT:
        errors.append(
            FieldError.invalid(
                "spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"
            )
        )
    errors += _strategy_errors(spec.get("updateStrategy", {}))
    retention = spec.get("persistentVolumeClaimRetentionPolicy", {})
    for field in ("whenDeleted", "whenScaled"):
        value = retention.get(field, "")
        if value not in _RETENTION:
            path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
            errors.append(FieldError.not_supported(path, value, _RETENTION))
    if is_new:
        for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
            path = f"spec.volumeClaimTemplates[{index}].spec"
            errors += claim_spec_errors(claim.get("spec", {}), path)
    errors += count_errors(spec, "replicas")
    errors += count_errors(spec, "minReadySeconds")
    start = spec.get("ordinals", {}).get("start", 0)
    if start < 0:
        errors.append(FieldError.invalid("spec.ordinals.start", start, NOT_NEGATIVE))
    service = spec.get("serviceName", "")
    if is_new and service:
        errors += [
            FieldError.invalid("spec.serviceName", service, detail)
            for detail in names.dns_label_errors(service)
        ]
    errors += selector_errors(spec, "statefulset")
    errors += _template_errors(spec, checks_template=checks_template)
    return errors + always_running_errors(spec["template"], "StatefulSet")


def _strategy_errors(strategy: Obj) -> list[FieldError]:
    path, kind, rolling = "spec.updateStrategy", strategy["type"], strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is None:
            return []
        return [
            FieldError.invalid(
                f"{path}.rollingUpdate",
                go_struct(rolling, _ROLLING),
                "only allowed for updateStrategy 'RollingUpdate'",
            )
        ]
    if kind != "RollingUpdate":
        shown = go_struct(strategy, STRATEGY)
        if rolling is not None:
            shown["RollingUpdate"] = go_struct(rolling, _ROLLING)
        return [FieldError.invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'")]
    return [] if rolling is None else _rolling_errors(rolling, f"{path}.rollingUpdate")


def _rolling_errors(rolling: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    partition, unavailable = rolling.get("partition", 0), rolling.get("maxUnavailable")
    if partition < 0:
        errors.append(FieldError.invalid(f"{path}.partition", partition, NOT_NEGATIVE))
    if unavailable is None:
        return errors
    at = f"{path}.maxUnavailable"
    errors += amount_errors(unavailable, at)
    if number_of(unavailable) == 0:
        errors.append(FieldError.invalid(at, unavailable, "cannot be 0"))
    return errors + above_all_errors(unavailable, at)


def _template_errors(spec: Obj, *, checks_template: bool) -> list[FieldError]:
    """Validate the template as its pods will be: with claims as volumes, without a host name."""
    try:
        selector = labels.from_object(spec.get("selector"))
    except ValueError:
        return [FieldError.invalid("spec.selector", spec["selector"])]
    template, path = spec["template"], "spec.template"
    own = template.get("metadata", {}).get("labels", {})
    errors = [] if selector.matches(own) else [mismatched_labels(own)]
    if not checks_template:
        return errors + template_metadata_errors(template, path)
    return errors + template_errors({**template, "spec": _pod_spec(spec)}, path)


def _pod_spec(spec: Obj) -> Obj:
    """Return the pod specification of the template with the volumes of the claims."""
    pod = {**spec["template"].get("spec", {})}
    for field in ("hostname", "subdomain"):
        pod.pop(field, None)
    claims = [
        claim.get("metadata", {}).get("name", "") for claim in spec.get("volumeClaimTemplates", ())
    ]
    if claims:
        volumes = {
            name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
        }
        others = [volume for volume in pod.get("volumes", ()) if volume.get("name") not in volumes]
        pod["volumes"] = [*volumes.values(), *others]
    return pod


def _shown(spec: Obj, field: str) -> Any:
    """Return the value of an immutable field as messages show it."""
    if field == "volumeClaimTemplates":
        claims = spec.get(field)
        return claims and [volume_claim(claim) for claim in claims]
    return spec.get(field, None if field == "selector" else "")
