"""Validation of HorizontalPodAutoscalers. Source: autoscaling validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.resource_names import container_resource_name_errors
from moorage.apiserver.registry.declare.rules import (
    NOT_NEGATIVE,
    each_field,
    not_negative,
    update,
    validator,
)
from moorage.apiserver.registry.kind import Obj

_LONGEST_PERIOD_S = 1800
_LONGEST_WINDOW_S = 3600
_SELECT_POLICIES = ("Disabled", "Max", "Min")
_POLICY_TYPES = ("Percent", "Pods")
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")
_COUNTS = ("currentReplicas", "desiredReplicas")
_WITHOUT_GROUP = "ReplicationController"


class _References(msgspec.Struct, frozen=True):
    """What an `apiVersion` may be: `any_version` skips its check."""

    any_version: bool = False
    no_group: bool = False


def validate_autoscaler(autoscaler: Obj) -> list[FieldError]:
    """Return the errors of a new HorizontalPodAutoscaler."""
    spec = autoscaler["spec"]
    return list(_spec_errors(spec, 1, _References(no_group=_has_core_target(spec)), _OBJECTS))


def validate_autoscaler_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update; what was wrong with an API version may stay so."""
    spec, was = new["spec"], old["spec"]
    target, before = spec["scaleTargetRef"], was["scaleTargetRef"]
    if _kind_of(target) == _kind_of(before):
        targets = _References(any_version=True)
    else:
        targets = _References(no_group=_has_core_target(spec))
    objects = _OBJECTS
    if any(_object_version_error(metric) for metric in was.get("metrics", ())):
        objects = _References(any_version=True, no_group=True)
    lowest = 0 if was.get("minReplicas") == 0 else 1
    return list(_spec_errors(spec, lowest, targets, objects))


validate_autoscaler_status = update(validator(*each_field("status", _COUNTS, not_negative)))

_OBJECTS = _References(no_group=True)


def _kind_of(reference: Obj) -> tuple[str, str]:
    return reference.get("apiVersion", ""), reference.get("kind", "")


def _has_core_target(spec: Obj) -> bool:
    """Return whether the target is of the one kind with a scale in the group without a name."""
    return bool(spec["scaleTargetRef"].get("kind") == _WITHOUT_GROUP)


def _object_version_error(metric: Obj) -> str:
    if metric.get("type") != "Object" or "object" not in metric:
        return ""
    return _version_error(metric["object"].get("describedObject", {}), _OBJECTS)


def _spec_errors(
    spec: Obj, lowest: int, targets: _References, objects: _References
) -> Iterator[FieldError]:
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if minimum is not None and minimum < lowest:
        detail = f"must be greater than or equal to {lowest}"
        yield FieldError.invalid("spec.minReplicas", minimum, detail)
    path = "spec.maxReplicas"
    if maximum == 0:
        yield FieldError.required(path, "must be set and greater than 0")
    elif maximum < 0:
        yield FieldError.invalid(path, maximum, "must be greater than or equal to 1")
    if minimum is not None and maximum < minimum:
        detail = "must be greater than or equal to `minReplicas`"
        yield FieldError.invalid(path, maximum, detail)
    yield from _reference_errors(spec["scaleTargetRef"], "spec.scaleTargetRef", targets)
    yield from _metrics_errors(spec.get("metrics", []), minimum, objects)
    for direction in ("scaleUp", "scaleDown"):
        rules = spec.get("behavior", {}).get(direction)
        if rules is not None:
            yield from _rules_errors(rules, f"spec.behavior.{direction}")


def _reference_errors(reference: Obj, path: str, allowed: _References) -> Iterator[FieldError]:
    for field in ("kind", "name"):
        value = reference.get(field, "")
        if not value:
            yield FieldError.required(f"{path}.{field}")
        for detail in names.path_segment_errors(value):
            yield FieldError.invalid(f"{path}.{field}", value, detail)
    if detail := _version_error(reference, allowed):
        yield FieldError.invalid(f"{path}.apiVersion", reference.get("apiVersion", ""), detail)


def _version_error(reference: Obj, allowed: _References) -> str:
    version = reference.get("apiVersion", "")
    if allowed.any_version:
        return ""
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    if not allowed.no_group and not version.rpartition("/")[0]:
        return "apiVersion must specify API group"
    return ""


def _metrics_errors(
    metrics: list[Obj], minimum: int | None, objects: _References
) -> Iterator[FieldError]:
    for index, metric in enumerate(metrics):
        yield from _metric_errors(metric, f"spec.metrics[{index}]", objects)
    if minimum == 0 and not any(metric["type"] in ("Object", "External") for metric in metrics):
        yield FieldError.forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero "
            "replicas",
        )


def _metric_errors(metric: Obj, path: str, objects: _References) -> Iterator[FieldError]:
    type_ = metric.get("type", "")
    unsupported = FieldError.not_supported(f"{path}.type", type_, sorted(_FIELDS))
    if not type_:
        yield FieldError.required(f"{path}.type", "must specify a metric source type")
    if type_ not in _FIELDS:
        yield unsupported
    present = [field for field in _SOURCES if field in metric]
    # Only the first is looked into: the others may not be there at all.
    for field in present[:1]:
        yield from _SOURCES[field](metric[field], f"{path}.{field}", objects)
    expected = _FIELDS.get(type_)
    if expected is None:
        yield unsupported
    elif expected not in metric:
        yield FieldError.required(
            f"{path}.{expected}", "must populate information for the given metric source"
        )
    if len(present) != 1:
        for field in present:
            if field != expected:
                yield FieldError.forbidden(
                    f"{path}.{field}", "must populate the given metric source only"
                )


def _object_errors(source: Obj, path: str, objects: _References) -> Iterator[FieldError]:
    described = source.get("describedObject", {})
    yield from _reference_errors(described, f"{path}.describedObject", objects)
    yield from _identifier_errors(source["metric"], f"{path}.metric")
    yield from _target_errors(source["target"], f"{path}.target")
    if not source["target"].keys() & {"value", "averageValue"}:
        yield FieldError.required(
            f"{path}.target.averageValue", "must set either a target value or averageValue"
        )


def _external_errors(source: Obj, path: str, _: _References) -> Iterator[FieldError]:
    target = source["target"]
    yield from _identifier_errors(source["metric"], f"{path}.metric")
    yield from _target_errors(target, f"{path}.target")
    if not target.keys() & {"value", "averageValue"}:
        yield FieldError.required(
            f"{path}.target.averageValue",
            "must set either a target value for metric or a per-pod target",
        )
    if target.keys() >= {"value", "averageValue"}:
        yield FieldError.forbidden(
            f"{path}.target.value",
            "may not set both a target value for metric and a per-pod target",
        )


def _pods_errors(source: Obj, path: str, _: _References) -> Iterator[FieldError]:
    yield from _identifier_errors(source["metric"], f"{path}.metric")
    yield from _target_errors(source["target"], f"{path}.target")
    if "averageValue" not in source["target"]:
        yield FieldError.required(
            f"{path}.target.averageValue", "must specify a positive target averageValue"
        )


def _resource_errors(source: Obj, path: str, _: _References) -> Iterator[FieldError]:
    if not source.get("name"):
        yield FieldError.required(f"{path}.name", "must specify a resource name")
    yield from _usage_errors(source["target"], f"{path}.target")


def _container_errors(source: Obj, path: str, _: _References) -> Iterator[FieldError]:
    name, container = source.get("name", ""), source.get("container", "")
    if name:
        yield from container_resource_name_errors(name, f"{path}.name")
    else:
        yield FieldError.required(f"{path}.name", "must specify a resource name")
    if container:
        for detail in names.dns_label_errors(container):
            yield FieldError.invalid(f"{path}.container", container, detail)
    else:
        yield FieldError.required(f"{path}.container", "must specify a container")
    yield from _usage_errors(source["target"], f"{path}.target")


def _usage_errors(target: Obj, path: str) -> Iterator[FieldError]:
    yield from _target_errors(target, path)
    if not target.keys() & {"averageUtilization", "averageValue"}:
        yield FieldError.required(
            f"{path}.averageUtilization",
            "must set either a target raw value or a target utilization",
        )
    if target.keys() >= {"averageUtilization", "averageValue"}:
        yield FieldError.forbidden(
            f"{path}.averageValue", "may not set both a target raw value and a target utilization"
        )


def _target_errors(target: Obj, path: str) -> Iterator[FieldError]:
    type_ = target.get("type", "")
    if not type_:
        yield FieldError.required(f"{path}.type", "must specify a metric target type")
    if type_ not in _TARGET_TYPES:
        detail = "must be either Utilization, Value, or AverageValue"
        yield FieldError.invalid(f"{path}.type", type_, detail)
    for field in ("value", "averageValue"):
        if field in target and quantity.parse(target[field]).nano <= 0:
            yield FieldError.invalid(f"{path}.{field}", target[field], "must be positive")
    percent = target.get("averageUtilization", 1)
    if percent < 1:
        yield FieldError.invalid(f"{path}.averageUtilization", percent, "must be greater than 0")


def _identifier_errors(identifier: Obj, path: str) -> Iterator[FieldError]:
    name = identifier.get("name", "")
    if not name:
        yield FieldError.required(f"{path}.name", "must specify a metric name")
    for detail in names.path_segment_errors(name):
        yield FieldError.invalid(f"{path}.name", name, detail)


def _rules_errors(rules: Obj, path: str) -> Iterator[FieldError]:
    window = rules.get("stabilizationWindowSeconds", 0)
    field = f"{path}.stabilizationWindowSeconds"
    if window < 0:
        yield FieldError.invalid(field, window, "must be greater than or equal to zero")
    if window > _LONGEST_WINDOW_S:
        detail = f"must be less than or equal to {_LONGEST_WINDOW_S}"
        yield FieldError.invalid(field, window, detail)
    selected = rules.get("selectPolicy")
    if selected is not None and selected not in _SELECT_POLICIES:
        yield FieldError.not_supported(f"{path}.selectPolicy", selected, _SELECT_POLICIES)
    policies: Iterable[Obj] = rules.get("policies", ())
    if not policies:
        yield FieldError.required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        yield from _policy_errors(policy, f"{path}.policies[{index}]")
    tolerance = rules.get("tolerance")
    if tolerance is not None and quantity.parse(tolerance).nano < 0:
        yield FieldError.invalid(f"{path}.tolerance", tolerance, NOT_NEGATIVE)


def _policy_errors(policy: Obj, path: str) -> Iterator[FieldError]:
    type_, period_s = policy.get("type", ""), policy.get("periodSeconds", 0)
    if type_ not in _POLICY_TYPES:
        yield FieldError.not_supported(f"{path}.type", type_, _POLICY_TYPES)
    for field in ("value", "periodSeconds"):
        if policy.get(field, 0) <= 0:
            yield FieldError.invalid(
                f"{path}.{field}", policy.get(field, 0), "must be greater than zero"
            )
    if period_s > _LONGEST_PERIOD_S:
        detail = f"must be less than or equal to {_LONGEST_PERIOD_S}"
        yield FieldError.invalid(f"{path}.periodSeconds", period_s, detail)


_FIELDS = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""The field of each metric source type, in the order in which they are looked at."""

_SOURCES: dict[str, Callable[[Obj, str, _References], Iterator[FieldError]]] = {
    "object": _object_errors,
    "external": _external_errors,
    "pods": _pods_errors,
    "resource": _resource_errors,
    "containerResource": _container_errors,
}
