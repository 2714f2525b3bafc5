"""Metrics page: `/metrics` as Prometheus text, for those who may `get` the path.

Source: kube-apiserver `/metrics`; the names and meanings are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from aiohttp import web

from moorage.apiserver.endpoints.replies import Reply, text_reply
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.server.served_requests import ServedRequests
from moorage.apiserver.storage import WatchCache
from moorage.wire.metrics import CONTENT_TYPE, Family, Gauge, exposition, process_families

_PATH = "/metrics"


class MetricsPage:
    """Serves the path; None for any other."""

    def __init__(self, requests: ServedRequests, others: Callable[[], Iterable[Family]]) -> None:
        """`others` returns families beside those of requests and of the process."""
        self._requests = requests
        self._others = others

    def __call__(self, http: web.BaseRequest) -> Reply | None:
        if http.path != _PATH:
            return None
        families = (*self._requests.families(), *self._others(), *process_families())
        reply = text_reply(exposition(families))
        reply.content_type = CONTENT_TYPE
        reply.is_compressible = True
        return reply


def storage_families(resource_map: ResourceMap, cache: WatchCache[Stored]) -> Iterator[Family]:
    """Yield how many objects of each kind are stored."""
    by_name = Gauge(
        "apiserver_storage_objects",
        "[DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects "
        "at the time of last check split by kind.",
        ("resource",),
    )
    by_group = Gauge(
        "apiserver_resource_objects",
        "Number of stored objects at the time of last check split by kind.",
        ("group", "resource"),
    )
    for kind, _ in resource_map.resources():
        if kind.is_stored:
            count = cache.count(kind.prefix(""))
            by_name.set(count, resource=kind.resource)
            by_group.set(count, group=kind.group, resource=kind.plural)
    yield from (by_name, by_group)
