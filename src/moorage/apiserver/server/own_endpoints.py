"""Service, Endpoints and EndpointSlice `kubernetes` in `default`: where pods find the API.

Brought up to date at every start. Source: controlplane `reconcilers/endpointsadapter`,
`controller/kubernetesservice` of Kubernetes 1.37.
"""

from __future__ import annotations

import ipaddress

from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.endpoints import ENDPOINT_SLICE, ENDPOINTS
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User

_NAMESPACE, _NAME = "default", "kubernetes"
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


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
