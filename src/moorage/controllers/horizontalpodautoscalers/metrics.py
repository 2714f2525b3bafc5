"""Metrics of an autoscaler: what each of its metric sources proposes.

Resources of pods and of their containers come from `metrics.k8s.io`. Custom and external metrics
have APIs of their own, which nothing here serves: they fail with the texts of a cluster without
them. Source: `horizontal.go` of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

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
    propose_by_utilization,
    propose_by_value,
    requests_of,
)

_MILLI = 10**6
_CUSTOM_API = (
    "unable to fetch metrics from custom metrics API: no custom metrics API "
    "(custom.metrics.k8s.io) registered"
)
_EXTERNAL_API = (
    "unable to fetch metrics from external metrics API: the server could not find the requested "
    "resource (get {}.external.metrics.k8s.io)"
)

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
    """The pods of a target, and how to measure them."""

    current: int
    pods: list[Pod]
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
    """Return what a metric proposes. Raises MetricError."""
    match metric.type:
        case "Resource":
            return await _of_pods(metric.resource, measured, tolerances)
        case "ContainerResource":
            return await _of_containers(metric.container_resource, measured, tolerances)
        case "Pods":
            cause = f"unable to get metric {metric.pods.metric.name}: {_CUSTOM_API}"
            raise MetricError(
                "FailedGetPodsMetric", cause, f"failed to get pods metric value: {cause}"
            )
        case "Object":
            raise _object_error(metric.object, namespace)
        case "External":
            raise _external_error(metric.external, namespace)
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


def _object_error(source: MetricSource, namespace: str) -> MetricError:
    described, name = source.described_object, source.metric.name
    cause = (
        f"unable to get metric {name}: {_CUSTOM_API} on {described.kind} "
        f"{namespace}/{described.name}"
    )
    text = cause
    if source.target.average_value is not None and source.target.type == "AverageValue":
        text = f"failed to get {name} object metric: {cause}"
    return MetricError("FailedGetObjectMetric", cause, f"failed to get object metric value: {text}")


def _external_error(source: MetricSource, namespace: str) -> MetricError:
    name = source.metric.name
    cause = (
        f"unable to get external metric {namespace}/{name}/{_selector(source.metric.selector)}: "
        f"{_EXTERNAL_API.format(name)}"
    )
    text = (
        f"failed to get external metric {name}: {cause}"
        if source.target.average_value is None
        else f"failed to get {name} external metric: {cause}"
    )
    return MetricError(
        "FailedGetExternalMetric", cause, f"failed to get {name} external metric value: {text}"
    )


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
