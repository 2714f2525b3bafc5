"""Metrics of other APIs: custom metrics of pods and objects, external metrics.

Adapters of monitoring systems serve them behind APIServices; a cluster without one answers that
the API is not there. Source: custom.metrics.k8s.io/v1beta1 and v1beta2,
external.metrics.k8s.io/v1beta1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from urllib.parse import quote

import msgspec

from moorage.api import labels, quantity
from moorage.api.autoscaling import CrossVersionObjectReference, MetricIdentifier
from moorage.api.clock import parse_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import Object
from moorage.controllers.horizontalpodautoscalers.proposals import PodUsage, ProposalError
from moorage.controllers.horizontalpodautoscalers.targets import TargetError
from moorage.wire.client.discovery import preferred_versions
from moorage.wire.client.rest import Client, UnreachableError

_CUSTOM, _EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
_VERSIONS = (f"{_CUSTOM}/v1beta2", f"{_CUSTOM}/v1beta1")
_WINDOW = timedelta(minutes=1)
"""The window of a metric that names none."""

NameResource = Callable[[CrossVersionObjectReference], Awaitable[str]]
"""Returns the qualified plural of a kind, `deployments.apps`. Raises as `ScaleTargets.get`."""


class _Described(Object, frozen=True):
    name: str = ""


class _MetricValue(Object, frozen=True):
    described_object: _Described = _Described()
    timestamp: str = ""
    window_seconds: int | None = None
    value: str = "0"


class _MetricValues(Object, frozen=True):
    items: tuple[_MetricValue, ...] = ()


class OtherApis:
    """Reads custom and external metrics in one namespace; amounts are in thousandths."""

    def __init__(self, client: Client, namespace: str, name_resource: NameResource) -> None:
        self._client = client
        self._namespace = namespace
        self._name_resource = name_resource

    async def of_pods(self, metric: MetricIdentifier, pods: str) -> dict[str, PodUsage]:
        """Return a metric of the pods that a selector selects. Raises ProposalError."""
        values = await self._custom("pods/*", metric, {"labelSelector": pods})
        usages = {}
        for one in values:
            seconds = one.window_seconds
            window = _WINDOW if seconds is None else timedelta(seconds=seconds)
            milli = quantity.parse(one.value).milli
            usages[one.described_object.name] = PodUsage(milli, parse_time(one.timestamp), window)
        return usages

    async def of_object(
        self, metric: MetricIdentifier, described: CrossVersionObjectReference
    ) -> int:
        """Return a metric of an object in the namespace. Raises ProposalError."""
        is_namespace = described.kind == "Namespace" and "/" not in described.api_version
        place = None if is_namespace else described
        return quantity.parse((await self._custom(place, metric, {}))[0].value).milli

    async def external(self, metric: MetricIdentifier) -> int:
        """Return the sum of an external metric's values. Raises ProposalError."""
        path = f"/apis/{_EXTERNAL}/v1beta1/namespaces/{self._namespace}/{_quoted(metric.name)}"
        try:
            query = {"labelSelector": _selector(metric)}
            values = await self._read(path, query)
        except NotFoundError:
            why = (
                f"the server could not find the requested resource (get {metric.name}.{_EXTERNAL})"
            )
            raise ProposalError(
                f"unable to fetch metrics from external metrics API: {why}"
            ) from None
        except (StatusError, UnreachableError, ValueError) as error:
            text = f"unable to fetch metrics from external metrics API: {error}"
            raise ProposalError(text) from error
        if not values:
            raise ProposalError("no metrics returned from external metrics API")
        return sum(quantity.parse(one.value).milli for one in values)

    async def _custom(
        self,
        place: str | CrossVersionObjectReference | None,
        metric: MetricIdentifier,
        query: dict[str, str],
    ) -> tuple[_MetricValue, ...]:
        """Return at least one value. `place` is an object, None for the namespace."""
        try:
            version = await self._custom_version()
            if isinstance(place, CrossVersionObjectReference):
                name = await self._name_resource(place)
                place = f"{_quoted(name)}/{_quoted(place.name)}"
            path = f"/apis/{version}/namespaces/{self._namespace}/{place or 'metrics'}"
            query = {**query, "metricLabelSelector": _selector(metric)}
            values = await self._read(f"{path}/{_quoted(metric.name)}", query)
        except (StatusError, UnreachableError, ValueError, TargetError) as error:
            text = f"unable to fetch metrics from custom metrics API: {error}"
            raise ProposalError(text) from error
        if not values:
            raise ProposalError("no metrics returned from custom metrics API")
        return values

    async def _custom_version(self) -> str:
        try:
            served = await preferred_versions(self._client, _CUSTOM)
        except NotFoundError:
            served = ()
        for version in served:
            if version in _VERSIONS:
                return version
        raise TargetError(f"no custom metrics API ({_CUSTOM}) registered")

    async def _read(self, path: str, query: dict[str, str]) -> tuple[_MetricValue, ...]:
        body = await self._client.request("GET", path, query=query)
        values = msgspec.json.decode(body, type=_MetricValues).items
        for one in values:
            quantity.parse(one.value)
        return values


def _selector(metric: MetricIdentifier) -> str:
    """Return the text of a metric's selector. Raises ValueError."""
    return "" if metric.selector is None else str(labels.from_object(metric.selector))


def _quoted(segment: str) -> str:
    return quote(segment, safe="")
