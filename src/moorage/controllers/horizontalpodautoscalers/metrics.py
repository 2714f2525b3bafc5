"""Metrics of an autoscaler: what each of its metric sources proposes.

Resources of pods and of their containers come from `metrics.k8s.io`, custom and external metrics
from APIs of their own. Source: `horizontal.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from moorage.api import quantity
from moorage.api.autoscaling import (
    HorizontalPodAutoscaler,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ResourceSource,
)
from moorage.api.meta import Raw
from moorage.api.pods import Pod
from moorage.api.quantity import Family, Quantity
from moorage.controllers.horizontalpodautoscalers.proposals import (
    PodUsage,
    Proposal,
    ProposalError,
    Readiness,
    Tolerances,
    group_pods,
    propose_by_total,
    propose_by_utilization,
    propose_by_value,
    propose_per_pod,
    requests_of,
)
from moorage.controllers.horizontalpodautoscalers.targets import OtherApis

_MILLI = 10**6
ReadUsages = Callable[[str, str], Awaitable[dict[str, PodUsage]]]
"""(resource, container) → usage by pod. Raises ProposalError."""


class MetricError(Exception):
    """A metric proposes nothing.

    `reason` and `cause` are those of its event and condition; the text is what the error of the
    whole computation quotes.
    """

    def __init__(self, reason: str, cause: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class MetricResult:
    """What a metric proposes, what it is called in reasons, and its part of the status."""

    replicas: int
    name: str
    status: Raw


@dataclass(frozen=True, slots=True)
class PodsToMeasure:
    """The pods of a target, and how to measure them.

    `current` is the number that is wanted now, `observed` the one that is there.
    """

    current: int
    observed: int
    selector: str
    pods: list[Pod]
    other: OtherApis
    read_usages: ReadUsages
    now: datetime
    readiness: Readiness


def tolerances_of(autoscaler: HorizontalPodAutoscaler, default: float) -> Tolerances:
    """Return the tolerances of an autoscaler, where it has none the default."""
    behavior = autoscaler.spec.behavior
    if behavior is None:
        return Tolerances(default, default)
    texts = (behavior.scale_down.tolerance, behavior.scale_up.tolerance)
    down, up = (default if text is None else quantity.parse(text).nano / 1e9 for text in texts)
    return Tolerances(down, up)


async def evaluate(
    metric: MetricSpec, namespace: str, measured: PodsToMeasure, tolerances: Tolerances
) -> MetricResult:
    """Return the proposal of a metric. Raises MetricError."""
    match metric.type:
        case "Resource":
            return await _of_pods(metric.resource, measured, tolerances)
        case "ContainerResource":
            return await _of_containers(metric.container_resource, measured, tolerances)
        case "Pods":
            return await _of_custom(metric.pods, measured, tolerances)
        case "Object":
            return await _of_object(metric.object, namespace, measured, tolerances)
        case "External":
            return await _of_external(metric.external, namespace, measured, tolerances)
        case other:
            cause = f'unknown metric source type "{other}"'
            raise MetricError("InvalidMetricSourceType", cause, cause)


async def _of_pods(
    source: ResourceSource, measured: PodsToMeasure, tolerances: Tolerances
) -> MetricResult:
    try:
        proposal = await _measured(source, measured, tolerances)
    except ProposalError as error:
        text = f"failed to get {source.name} resource metric value: {error}"
        raise MetricError("FailedGetResourceMetric", str(error), text) from error
    status = {"name": source.name, "current": _current(source, proposal)}
    return MetricResult(
        proposal.replicas,
        _name(source, proposal, "resource"),
        {"type": "Resource", "resource": status},
    )


async def _of_containers(
    source: ResourceSource, measured: PodsToMeasure, tolerances: Tolerances
) -> MetricResult:
    try:
        proposal = await _measured(source, measured, tolerances)
    except ProposalError as error:
        text = f"failed to get {source.container} container metric value: {error}"
        raise MetricError("FailedGetContainerResourceMetric", str(error), text) from error
    status = {
        "name": source.name,
        "container": source.container,
        "current": _current(source, proposal),
    }
    return MetricResult(
        proposal.replicas,
        _name(source, proposal, "container resource"),
        {"type": "ContainerResource", "containerResource": status},
    )


def _name(source: ResourceSource, proposal: Proposal, what: str) -> str:
    if proposal.percent is None:
        return f"{source.name} resource"
    return f"{source.name} {what} utilization (percentage of request)"


def _current(source: ResourceSource, proposal: Proposal) -> Raw:
    family = Family.BINARY if source.name == "memory" else Family.DECIMAL
    current: Raw = {"averageValue": str(Quantity(proposal.average_milli * _MILLI, family))}
    if proposal.percent is not None:
        current["averageUtilization"] = proposal.percent
    return current


async def _measured(
    source: ResourceSource, measured: PodsToMeasure, tolerances: Tolerances
) -> Proposal:
    """Return the proposal of a resource. Raises ProposalError."""
    target = source.target
    if target.average_value is None and target.average_utilization is None:
        raise ProposalError(
            "invalid resource metric source: neither an average utilization target nor an average "
            "value (usage) target was set"
        )
    what = "usage" if target.average_value is not None else "utilization"
    try:
        return await _proposal(source, target, measured, tolerances)
    except ProposalError as error:
        raise ProposalError(f"failed to get {source.name} {what}: {error}") from error


async def _proposal(
    source: ResourceSource, target: MetricTarget, measured: PodsToMeasure, tolerances: Tolerances
) -> Proposal:
    usages = await measured.read_usages(source.name, source.container)
    pods = measured.pods
    groups = group_pods(pods, usages, source.name, measured.now, measured.readiness)
    if target.average_value is not None:
        milli = quantity.parse(target.average_value).milli
        return propose_by_value(measured.current, milli, pods, usages, groups, tolerances)
    return propose_by_utilization(
        measured.current,
        target.average_utilization or 0,
        pods,
        usages,
        lambda: requests_of(pods, source.container, source.name),
        groups,
        tolerances,
    )


async def _of_custom(
    source: MetricSource, measured: PodsToMeasure, tolerances: Tolerances
) -> MetricResult:
    name, target = source.metric.name, source.target
    try:
        usages = await measured.other.of_pods(source.metric, measured.selector)
    except ProposalError as error:
        raise _pods_error(f"unable to get metric {name}: {error}") from error
    pods = measured.pods
    groups = group_pods(pods, usages, "", measured.now, measured.readiness)
    milli = quantity.parse(target.average_value or "0").milli
    try:
        proposal = propose_by_value(measured.current, milli, pods, usages, groups, tolerances)
    except ProposalError as error:
        raise _pods_error(str(error)) from error
    status = {"metric": _identifier(source), "current": _average(proposal)}
    return MetricResult(proposal.replicas, f"pods metric {name}", {"type": "Pods", "pods": status})


def _pods_error(cause: str) -> MetricError:
    return MetricError("FailedGetPodsMetric", cause, f"failed to get pods metric value: {cause}")


async def _of_object(
    source: MetricSource, namespace: str, measured: PodsToMeasure, tolerances: Tolerances
) -> MetricResult:
    described, target, name = source.described_object, source.target, source.metric.name
    is_value = target.type == "Value" and target.value is not None
    try:
        total = await measured.other.of_object(source.metric, described)
    except ProposalError as error:
        cause = (
            f"unable to get metric {name}: {error} on {described.kind} {namespace}/{described.name}"
        )
        text = cause if is_value else f"failed to get {name} object metric: {cause}"
        raise _object_error(cause, text) from error
    try:
        proposal = _of_total(total, is_value, target, measured, tolerances)
    except ProposalError as error:
        raise _object_error(str(error), str(error)) from error
    status = {
        "describedObject": msgspec.to_builtins(described),
        "metric": _identifier(source),
        "current": _value(proposal) if is_value else _average(proposal),
    }
    title = f"{described.kind} metric {name}" if is_value else _external_name(source)
    return MetricResult(proposal.replicas, title, {"type": "Object", "object": status})


def _object_error(cause: str, text: str) -> MetricError:
    return MetricError("FailedGetObjectMetric", cause, f"failed to get object metric value: {text}")


async def _of_external(
    source: MetricSource, namespace: str, measured: PodsToMeasure, tolerances: Tolerances
) -> MetricResult:
    name, is_value = source.metric.name, source.target.average_value is None
    try:
        try:
            total = await measured.other.external(source.metric)
        except ProposalError as error:
            place = f"{namespace}/{name}/{_selector(source.metric.selector)}"
            raise ProposalError(f"unable to get external metric {place}: {error}") from error
        proposal = _of_total(total, is_value, source.target, measured, tolerances)
    except ProposalError as error:
        text = (
            f"failed to get external metric {name}: {error}"
            if is_value
            else f"failed to get {name} external metric: {error}"
        )
        raise MetricError(
            "FailedGetExternalMetric",
            str(error),
            f"failed to get {name} external metric value: {text}",
        ) from error
    status = {
        "metric": _identifier(source),
        "current": _value(proposal) if is_value else _average(proposal),
    }
    return MetricResult(
        proposal.replicas, _external_name(source), {"type": "External", "external": status}
    )


def _of_total(
    total: int,
    is_value: bool,
    target: MetricTarget,
    measured: PodsToMeasure,
    tolerances: Tolerances,
) -> Proposal:
    """Return the proposal of a total that is not of pods. Raises ProposalError."""
    text = target.value if is_value else target.average_value
    milli = quantity.parse(text or "0").milli
    if milli <= 0:
        raise ProposalError("the target is not positive")
    if is_value:
        return propose_by_total(measured.current, total, milli, measured.pods, tolerances)
    return propose_per_pod(measured.observed, total, milli, tolerances)


def _external_name(source: MetricSource) -> str:
    return f"external metric {source.metric.name}({_selector(source.metric.selector)})"


def _identifier(source: MetricSource) -> Raw:
    return msgspec.to_builtins(source.metric)  # type: ignore[no-any-return]


def _value(proposal: Proposal) -> Raw:
    return {"value": str(Quantity(proposal.average_milli * _MILLI))}


def _average(proposal: Proposal) -> Raw:
    return {"averageValue": str(Quantity(proposal.average_milli * _MILLI))}


def _selector(selector: Raw | None) -> str:
    """Return a label selector as Go prints it in these errors."""
    if selector is None:
        return "nil"
    labels = selector.get("matchLabels", {})
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{one.get('key', '')},Operator:{one.get('operator', '')},"
        f"Values:[{' '.join(one.get('values', ()))}],}},"
        for one in selector.get("matchExpressions", ())
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
