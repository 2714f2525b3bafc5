"""StatefulSets. Source: apps validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api import labels, names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.shared import READY
from moorage.apiserver.registry.declare.columns import AGE, NAME, containers_of, printer
from moorage.apiserver.registry.declare.rules import (
    NOT_NEGATIVE,
    Row,
    always_text,
    each_field,
    follows,
    not_above,
    not_negative,
    one_of,
    or_else,
    part,
    satisfies,
    unless_empty,
    update,
    validator,
)
from moorage.apiserver.registry.defaults import default_pod_template, default_volume_claim
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    scale_subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import STRATEGY, Shape, go_struct, volume_claim
from moorage.apiserver.registry.validation.pod_spec import template_errors, template_metadata_errors
from moorage.apiserver.registry.validation.volume_claims import claim_spec_errors
from moorage.apiserver.registry.validation.workload import (
    above_all_errors,
    always_running_errors,
    amount_errors,
    collision_errors,
    mismatched_labels,
    number_of,
    selector_errors,
)
from moorage.apiserver.registry.warnings import warn_workload

_ROLLING: Shape = (("partition", "Partition", 0), ("maxUnavailable", "MaxUnavailable", None))
_COUNTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_TYPES = "io.k8s.api.apps.v1"


def default_stateful_set(stateful_set: Obj) -> None:
    """Set the API defaults of a StatefulSet."""
    spec = stateful_set.setdefault("spec", {})
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    _default_update_strategy(spec.setdefault("updateStrategy", {}))
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for field in ("whenDeleted", "whenScaled"):
        if not retention.get(field):
            retention[field] = "Retain"
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    default_pod_template(spec.setdefault("template", {}))
    for claim in spec.get("volumeClaimTemplates", ()):
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        default_volume_claim(claim)


def _default_update_strategy(strategy: Obj) -> None:
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    # A strategy that is named without its parameters gets none.
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
        strategy["rollingUpdate"].setdefault("maxUnavailable", 1)


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


def _strategy_errors(strategy: Obj, path: str) -> list[FieldError]:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
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


_RULES: tuple[Row, ...] = (
    (
        "podManagementPolicy",
        always_text(
            satisfies(
                lambda policy: policy in ("OrderedReady", "Parallel"),
                "must be 'OrderedReady' or 'Parallel'",
            )
        ),
    ),
    ("updateStrategy", _strategy_errors),
    *each_field(
        "persistentVolumeClaimRetentionPolicy",
        ("whenDeleted", "whenScaled"),
        always_text(one_of("Retain", "Delete")),
    ),
)
_COUNT_ROWS: tuple[Row, ...] = (
    ("replicas", not_negative),
    ("minReadySeconds", not_negative),
    ("ordinals.start", not_negative),
)
_changed_errors = part(*_RULES, *_COUNT_ROWS)
_new_errors = part(
    *_RULES,
    ("volumeClaimTemplates[*].spec", or_else({}, claim_spec_errors)),
    *_COUNT_ROWS,
    ("serviceName", unless_empty(follows(names.dns_label_errors))),
)


def _spec_errors(
    spec: Obj, *, is_new: bool = False, checks_template: bool = True
) -> list[FieldError]:
    errors = (_new_errors if is_new else _changed_errors)(spec, "spec")
    errors += selector_errors(spec, "statefulset")
    errors += _template_errors(spec, checks_template=checks_template)
    return errors + always_running_errors(spec["template"], "StatefulSet")


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


def warn_about_stateful_set(stateful_set: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about the template, the volume claims and the history limit."""
    spec, warnings = stateful_set["spec"], warn_workload(stateful_set, old)
    # Upstream's paths differ by verb.
    inner = "" if old is None else ".Spec"
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        path = f"spec.volumeClaimTemplates[{index}]{inner}.resources"
        warnings += _fraction_warnings(claim.get("spec", {}).get("resources", {}), path)
    if spec.get("revisionHistoryLimit", 0) < 0:
        warnings.append(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value "
            ">= 0 is recommended"
        )
    return warnings


def _fraction_warnings(resources: Obj, path: str) -> list[str]:
    return [
        f'{path}.{side}[storage]: fractional byte value "{resources[side]["storage"]}" is invalid, '
        "must be an integer"
        for side in ("requests", "limits")
        if not quantity.parse(resources.get(side, {}).get("storage", "0")).is_whole
    ]


PRINTER = printer(NAME, READY, AGE, *containers_of())

STATEFUL_SET = Kind(
    name="StatefulSet",
    plural="statefulsets",
    served=(Served("apps", "v1", f"{_TYPES}.StatefulSet"),),
    short_names=("sts",),
    categories=("all",),
    strategy=Strategy(
        default=default_stateful_set,
        prepare_create=dropping_status("replicas", "availableReplicas"),
        prepare_update=keep_status,
        validate=validate_stateful_set,
        validate_update=validate_stateful_set_update,
        parts={"status": PartRules(keep_spec, validate_stateful_set_status)},
        warn=warn_about_stateful_set,
        name_errors=names.dns_label_errors,
        spec_of=get_spec,
    ),
    printer=PRINTER,
    subresources={**status_subresource(), **scale_subresource()},
)
