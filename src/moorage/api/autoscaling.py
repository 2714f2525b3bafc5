"""HorizontalPodAutoscalers and scales, as controllers read them. Source: autoscaling/v2, v1."""

from __future__ import annotations

import msgspec

from moorage.api.meta import Condition, Object, ObjectMeta, Raw


class CrossVersionObjectReference(Object, frozen=True):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class ScalingPolicy(Object, frozen=True):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(Object, frozen=True):
    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: tuple[ScalingPolicy, ...] = ()
    tolerance: str | None = None


class Behavior(Object, frozen=True):
    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


class MetricIdentifier(Object, frozen=True):
    name: str = ""
    selector: Raw | None = None


class MetricTarget(Object, frozen=True):
    type: str = ""
    value: str | None = None
    average_value: str | None = None
    average_utilization: int | None = None


class ResourceSource(Object, frozen=True):
    """A resource of pods; with a `container`, of that container of each."""

    name: str = ""
    container: str = ""
    target: MetricTarget = MetricTarget()


class MetricSource(Object, frozen=True):
    """A metric of pods, of an object, or of something outside of the cluster."""

    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()
    described_object: CrossVersionObjectReference = CrossVersionObjectReference()


class MetricSpec(Object, frozen=True):
    type: str = ""
    resource: ResourceSource = ResourceSource()
    container_resource: ResourceSource = ResourceSource()
    pods: MetricSource = MetricSource()
    object: MetricSource = MetricSource()
    external: MetricSource = MetricSource()


class HorizontalPodAutoscalerSpec(Object, frozen=True):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[MetricSpec, ...] = ()
    behavior: Behavior | None = None


class HorizontalPodAutoscalerStatus(Object, frozen=True):
    last_scale_time: str | None = None
    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: tuple[Raw, ...] | None = None
    conditions: tuple[Condition, ...] = ()


class HorizontalPodAutoscaler(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


class ScaleSpec(Object, frozen=True):
    replicas: int = 0


class ScaleStatus(Object, frozen=True):
    replicas: int = 0
    selector: str = ""


class Scale(Object, frozen=True):
    """How many replicas an object has and should have: its `scale` subresource."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


def with_condition(
    status: HorizontalPodAutoscalerStatus, new: Condition
) -> HorizontalPodAutoscalerStatus:
    """Set the condition of a type, whose transition time changes with its status alone."""
    conditions = list(status.conditions)
    for index, present in enumerate(conditions):
        if present.type == new.type:
            if present.status == new.status:
                since = present.last_transition_time
                new = msgspec.structs.replace(new, last_transition_time=since)
            conditions[index] = new
            break
    else:
        conditions.append(new)
    return msgspec.structs.replace(status, conditions=tuple(conditions))


def without_condition(
    status: HorizontalPodAutoscalerStatus, type_: str
) -> HorizontalPodAutoscalerStatus:
    """Return the status without the condition of a type."""
    kept = tuple(present for present in status.conditions if present.type != type_)
    return msgspec.structs.replace(status, conditions=kept)
