"""Service, Endpoints and EndpointSlice `kubernetes` in `default`: where pods find the API.

Brought up to date at every start. Source: controlplane `reconcilers/endpointsadapter`,
`controller/kubernetesservice` of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from aiohttp import web

from moorage import __version__
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.release import KUBERNETES, MAJOR, MINOR
from moorage.apiserver.endpoints.replies import Reply, json_reply, text_reply
from moorage.apiserver.endpoints.routing import is_true
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.endpoints import ENDPOINT_SLICE, ENDPOINTS
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.server.served_requests import ServedRequests
from moorage.apiserver.storage import WatchCache
from moorage.wire.metrics import CONTENT_TYPE, Family, Gauge, exposition, process_families

# Health endpoints: liveness, readiness and version.
#
# Source: API docs "Kubernetes API health endpoints".

Check = Callable[[], bool]
_PATHS = ("healthz", "livez", "readyz")


def is_health_path(path: str) -> bool:
    """Return whether a path is one of the health endpoints' or below."""
    return path.strip("/").partition("/")[0] in _PATHS


class Health:
    """Named checks; `readyz` runs all of them, the other endpoints only the live ones."""

    def __init__(self, live: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        everything = {**live, **ready}
        self._checks = {"healthz": dict(live), "livez": dict(live), "readyz": everything}

    def reply(self, path: str, query: Mapping[str, str]) -> Reply | None:
        """Return the response of a health path; None for any other path."""
        endpoint, _, check = path.strip("/").partition("/")
        if endpoint not in _PATHS:
            return None
        checks = self._checks[endpoint]
        if check:
            if check not in checks:
                return text_reply("404 page not found\n", 404)
            return text_reply("ok") if checks[check]() else _failed(endpoint, {check: False})
        results = {name: holds() for name, holds in checks.items()}
        if not all(results.values()):
            return _failed(endpoint, results)
        if is_true(query, "verbose"):
            return text_reply(_listed(results) + f"{endpoint} check passed\n")
        return text_reply("ok")


def _failed(endpoint: str, results: Mapping[str, bool]) -> Reply:
    return text_reply(_listed(results) + f"{endpoint} check failed\n", 500)


def _listed(results: Mapping[str, bool]) -> str:
    return "".join(
        f"[+]{name} ok\n" if holds else f"[-]{name} failed: reason withheld\n"
        for name, holds in results.items()
    )


def version_reply() -> Reply:
    """Return the `/version` document: the Kubernetes version; `gitVersion` also has Moorage's."""
    return json_reply(
        {
            "major": MAJOR,
            "minor": MINOR,
            "emulationMajor": MAJOR,
            "emulationMinor": MINOR,
            "minCompatibilityMajor": MAJOR,
            "minCompatibilityMinor": str(int(MINOR) - 1),
            "gitVersion": f"v{KUBERNETES}+moorage.{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": platform.python_implementation().lower(),
            "platform": f"{platform.system().lower()}/{_architecture()}",
        }
    )


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


# Metrics page: `/metrics` as Prometheus text, for those who may `get` the path.
#
# Source: kube-apiserver `/metrics`; the names and meanings are upstream's.

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


_NAMESPACE, _NAME = "default", "kubernetes"
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


def has_own_service(objects: Objects) -> bool:
    """Say whether the service and its endpoints exist."""
    kinds = (SERVICE, ENDPOINTS, ENDPOINT_SLICE)
    return all(objects.find(kind, _NAMESPACE, _NAME) is not None for kind in kinds)


async def write_own_endpoints(objects: Objects, address: str, port: int) -> None:
    """Bring both objects to the address and port of this server.

    Endpoints cannot have loopback addresses: a server without any other keeps neither. A refusal is
    logged; the server works without them.
    """
    if not _is_reachable(address):
        return
    for kind, wanted in (
        (ENDPOINTS, _endpoints(address, port)),
        (ENDPOINT_SLICE, _endpoint_slice(address, port)),
    ):
        try:
            await _write(objects, kind, wanted)
        except StatusError as error:
            log.warning("own endpoints not written", kind=kind.name, error=error)


async def correct_own_service(objects: Objects, port: int) -> None:
    """Bring the service's target port to the port of this server, which a restart may change."""
    item = objects.find(SERVICE, _NAMESPACE, _NAME)
    if item is None:
        return
    service = item.obj
    ports = service["spec"]["ports"]
    if [one.get("targetPort") for one in ports] == [port]:
        return
    service["spec"]["ports"] = [{**ports[0], "targetPort": port}]
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")
    try:
        await objects.update(
            request, SERVICE, SERVICE.storage, _NAMESPACE, _NAME, lambda _: service
        )
    except StatusError as error:
        log.warning("own service not corrected", error=error)


def _is_reachable(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def _write(objects: Objects, kind: Kind, wanted: Obj) -> None:
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")
    kind.strategy.default(wanted)
    if objects.find(kind, _NAMESPACE, _NAME) is None:
        await objects.create(request, kind, kind.storage, _NAMESPACE, wanted)
        return

    def make_new(old: Obj | None) -> Obj:
        assert old is not None
        labels = {**old["metadata"].get("labels", {}), **wanted["metadata"]["labels"]}
        return {**wanted, "metadata": {**old["metadata"], "labels": labels}}

    await objects.update(request, kind, kind.storage, _NAMESPACE, _NAME, make_new)


def _endpoints(address: str, port: int) -> Obj:
    return {
        "metadata": {
            "name": _NAME,
            "namespace": _NAMESPACE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": address}], "ports": [_port(port)]}],
    }


def _endpoint_slice(address: str, port: int) -> Obj:
    return {
        "metadata": {
            "name": _NAME,
            "namespace": _NAMESPACE,
            "labels": {"kubernetes.io/service-name": _NAME},
        },
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [_port(port)],
    }


def _port(port: int) -> Obj:
    return {"name": "https", "port": port, "protocol": "TCP"}
