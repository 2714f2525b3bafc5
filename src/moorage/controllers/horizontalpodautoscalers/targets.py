"""Scale targets: the `scale` of what an autoscaler refers to, of whatever kind.

Kinds are found by discovery, custom resources among them. Source: autoscaling/v1 Scale; client-go
`scale`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

import msgspec

from moorage.api import labels, quantity
from moorage.api.autoscaling import CrossVersionObjectReference, MetricIdentifier, Scale
from moorage.api.clock import Clock, parse_time
from moorage.api.durations import parse_duration
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.meta import Object, ObjectMeta
from moorage.controllers.horizontalpodautoscalers.proposals import PodUsage, ProposalError
from moorage.wire.client.discovery import preferred_versions, read_version
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.rest import Client, UnreachableError

_REMEMBERED_S = 30.0
_MOST_REMEMBERED = 1024
_WRITES = 5


class TargetError(Exception):
    """The target's kind is not there or not legal; the text says why, in upstream's words."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target and its scale as read; `body` is the whole Scale."""

    path: str
    body: bytes
    scale: Scale


class ScaleTargets:
    """Reads and writes scales. Where a kind is served is remembered for half a minute."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._resources: dict[tuple[str, str], tuple[float, Resource[PartialObject]]] = {}

    async def get(self, reference: CrossVersionObjectReference, namespace: str) -> Target:
        """Return the target. Raises TargetError, StatusError, UnreachableError."""
        resource = await self._resource(reference)
        root, _, plural = resource.path().rpartition("/")
        path = f"{root}/namespaces/{namespace}/{plural}/{quote(reference.name, safe='')}/scale"
        return await self._read(path)

    async def name_resource(self, reference: CrossVersionObjectReference) -> str:
        """Return the qualified plural of a kind. Raises as `get` does."""
        resource = await self._resource(reference)
        return f"{resource.plural}.{resource.group}" if resource.group else resource.plural

    async def put(self, target: Target, replicas: int) -> None:
        """Change the replicas, on a newer scale after a conflict.

        Raises StatusError and UnreachableError.
        """
        for attempt in range(_WRITES):
            scale = msgspec.json.decode(target.body)
            scale.setdefault("spec", {})["replicas"] = replicas
            try:
                await self._client.request("PUT", target.path, body=msgspec.json.encode(scale))
            except ConflictError:
                if attempt == _WRITES - 1:
                    raise
                target = await self._read(target.path)
            else:
                return

    async def _read(self, path: str) -> Target:
        body = await self._client.request("GET", path)
        return Target(path, body, msgspec.json.decode(body, type=Scale))

    async def _resource(self, reference: CrossVersionObjectReference) -> Resource[PartialObject]:
        """Return the resource of a kind, in the group's preferred version."""
        version = reference.api_version
        if version.count("/") > 1:
            raise TargetError(f"unexpected GroupVersion string: {version}")
        key = version.rpartition("/")[0], reference.kind
        now_s = self._clock.monotonic()
        remembered = self._resources.get(key)
        if remembered is not None and now_s - remembered[0] <= _REMEMBERED_S:
            return remembered[1]
        resource = await self._discovered(*key)
        if len(self._resources) >= _MOST_REMEMBERED:
            self._resources.clear()
        self._resources[key] = now_s, resource
        return resource

    async def _discovered(self, group: str, kind: str) -> Resource[PartialObject]:
        try:
            for version in await preferred_versions(self._client, group):
                for served in await read_version(self._client, version):
                    if served.resource.kind == kind:
                        return served.resource
        except NotFoundError:
            pass  # The group is not served: as if it had no such kind.
        raise TargetError(f'no matches for kind "{kind}" in group "{group}"')


# Metrics of other APIs: custom metrics of pods and objects, external metrics.
#
# Adapters of monitoring systems serve them behind APIServices; a cluster without one answers that
# the API is not there. Source: custom.metrics.k8s.io/v1beta1 and v1beta2,
# external.metrics.k8s.io/v1beta1.

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


# Usage of pods, from `metrics.k8s.io`, as autoscalers compare it with their targets.
#
# Source: metrics.k8s.io/v1beta1 PodMetrics; `podautoscaler/metrics` of Kubernetes 1.36.

_PATH = "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods"
_API = "resource metrics API"


class ContainerMetrics(Object, frozen=True):
    name: str = ""
    usage: dict[str, str] = {}


class PodMetrics(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    timestamp: str = ""
    window: str = "0s"
    containers: tuple[ContainerMetrics, ...] = ()


class _PodMetricsList(Object, frozen=True):
    items: tuple[PodMetrics, ...] = ()


async def read_usages(
    client: Client, namespace: str, selector: str, resource: str, container: str
) -> dict[str, PodUsage]:
    """Return the usage of a resource by selected pods, or by a container of each, by pod name.

    Raises ProposalError when there are no metrics.
    """
    try:
        body = await client.request(
            "GET", _PATH.format(namespace), query={"labelSelector": selector}
        )
        items = msgspec.json.decode(body, type=_PodMetricsList).items
        if not items:
            raise ProposalError(
                f"unable to get metrics for resource {resource}: no metrics returned from {_API}"
            )
        return usages_of(items, resource, container)
    except (StatusError, UnreachableError, ValueError) as error:
        raise ProposalError(
            f"unable to get metrics for resource {resource}: unable to fetch metrics from {_API}: "
            f"{error}"
        ) from error


def usages_of(items: Iterable[PodMetrics], resource: str, container: str) -> dict[str, PodUsage]:
    """Return the usage of each pod of which it is known whole. Raises ValueError."""
    usages: dict[str, PodUsage] = {}
    for item in items:
        wanted = [one for one in item.containers if not container or one.name == container]
        texts = [one.usage.get(resource) for one in wanted]
        if not texts or None in texts:
            continue
        milli = sum(quantity.parse(text).milli for text in texts if text is not None)
        window: timedelta = parse_duration(item.window)
        usages[item.metadata.name] = PodUsage(milli, parse_time(item.timestamp), window)
    return usages
