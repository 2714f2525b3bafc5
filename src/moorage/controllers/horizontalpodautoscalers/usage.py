"""Usage of pods, from `metrics.k8s.io`, as autoscalers compare it with their targets.

Source: metrics.k8s.io/v1beta1 PodMetrics; `podautoscaler/metrics` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from moorage.api import quantity
from moorage.api.clock import parse_time
from moorage.api.durations import parse_duration
from moorage.api.errors import StatusError
from moorage.api.meta import Object, ObjectMeta
from moorage.controllers.horizontalpodautoscalers.proposals import PodUsage, ProposalError
from moorage.wire.client.rest import Client, UnreachableError

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
