"""Proxy backends: the server that the name in a `/proxy` path means.

A name is `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`; a port is a decimal number, or the name of one
that the pod or the service declares. Only addresses outside of loopback, link-local
and multicast ranges are permitted, and behind a service only those of its pods: writers of statuses
and of EndpointSlices must not reach other servers through the API server. Source:
`ResourceLocation` of the pod, service and node registries of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from moorage.api.errors import BadRequestError, UnavailableError
from moorage.apiserver.endpoints.node_agents import (
    NodeAgent,
    ServerAddress,
    ip_address,
    port_number,
)
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.endpoints import ENDPOINT_SLICE
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.stored import Stored

_SCHEMES = ("", "http", "https")
_SERVICE_NAME = "kubernetes.io/service-name"


class Reader(Protocol):
    """The stored objects, as `registry.objects.Objects` has them."""

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None: ...

    def get(self, kind: Kind, namespace: str, name: str) -> Stored: ...

    def scan(self, kind: Kind, namespace: str) -> Sequence[Stored]: ...


class Backend(msgspec.Struct, frozen=True):
    """A server. `agent_of` is the node whose agent it is, reached with mutual TLS."""

    address: ServerAddress
    agent_of: str = ""


def pod_backend(objects: Reader, namespace: str, text: str) -> Backend:
    """Return the server in a pod; without a port the first that a container declares.

    Raises BadRequestError and NotFoundError.
    """
    scheme, name, port = _parts("pod", text)
    pod = objects.get(POD, namespace, name).obj
    number = _pod_port(pod, port)
    if number is None:
        raise _invalid("pod", text)
    addresses = _pod_addresses(pod)
    return Backend(ServerAddress(scheme, _permitted(addresses[0] if addresses else ""), number))


def _pod_port(pod: Obj, text: str) -> int | None:
    """Return the port that a text means; 0 without one, None if it means none."""
    declared = _declared_ports(pod)
    if not text:
        return next((entry["containerPort"] for entry in declared), 0)
    named = (entry["containerPort"] for entry in declared if entry.get("name") == text)
    return port_number(text) or next(named, None)


def _declared_ports(pod: Obj) -> Iterator[Obj]:
    for container in pod["spec"]["containers"]:
        yield from container.get("ports", ())


def _pod_addresses(pod: Obj) -> list[str]:
    status = pod.get("status", {})
    return [entry["ip"] for entry in status.get("podIPs", ())] or [status.get("podIP", "")]


def service_backend(objects: Reader, namespace: str, text: str) -> Backend:
    """Return one of the ready pods of a service, at random.

    Raises BadRequestError, NotFoundError, and UnavailableError without a port or a ready pod.
    """
    scheme, name, port = _parts("service", text)
    if number := port_number(port):
        port = _port_name(objects.get(SERVICE, namespace, name).obj, number)
    host, target = _endpoint(objects, namespace, name, port, is_of_pods=True)
    return Backend(ServerAddress(scheme, host, target))


def service_authority(objects: Reader, namespace: str, name: str, port: int) -> str:
    """Return the `HOST:PORT` of one of the ready endpoints behind a port of a service, at random.

    The endpoint need not be a pod: the caller checks that its certificate is of the service.
    Raises NotFoundError, and UnavailableError without a ready endpoint.
    """
    port_name = _port_name(objects.get(SERVICE, namespace, name).obj, port)
    host, target = _endpoint(objects, namespace, name, port_name, is_of_pods=False)
    return ServerAddress("https", host, target).authority


def _endpoint(
    objects: Reader, namespace: str, name: str, port: str, *, is_of_pods: bool
) -> tuple[str, int]:
    """Return address and port of a ready endpoint. Raises UnavailableError."""
    found = [
        (_permitted(address), number)
        for address, number in _endpoints(objects, namespace, name, port, is_of_pods=is_of_pods)
    ]
    if not found:
        raise UnavailableError(f'no endpoints available for service "{name}"')
    return random.choice(found)


def _port_name(service: Obj, number: int) -> str:
    for port in service["spec"].get("ports", ()):
        if port["port"] == number:
            name: str = port.get("name", "")
            return name
    name = service["metadata"]["name"]
    raise UnavailableError(f'no service port {number} found for service "{name}"')


def _endpoints(
    objects: Reader, namespace: str, service: str, port: str, *, is_of_pods: bool
) -> Iterator[tuple[str, int]]:
    """Yield address and number of the named port of each ready endpoint of a service.

    `is_of_pods`: only endpoints that are pods of the namespace.
    """
    for item in objects.scan(ENDPOINT_SLICE, namespace):
        if item.labels.get(_SERVICE_NAME) != service:
            continue
        slice_ = item.obj
        numbers = [
            entry["port"]
            for entry in slice_.get("ports") or ()
            if (entry.get("name") or "") == port and entry.get("port")
        ]
        for endpoint in slice_.get("endpoints") or () if numbers else ():
            is_ready = (endpoint.get("conditions") or {}).get("ready") is not False
            if is_ready and (not is_of_pods or _is_of_pod(objects, namespace, endpoint)):
                yield endpoint["addresses"][0], numbers[0]


def _is_of_pod(objects: Reader, namespace: str, endpoint: Obj) -> bool:
    target = endpoint.get("targetRef") or {}
    if target.get("namespace") != namespace or not target.get("name"):
        return False
    pod = objects.find(POD, namespace, target["name"])
    return pod is not None and endpoint["addresses"][0] in _pod_addresses(pod.obj)


def node_backend(text: str, agent: NodeAgent) -> Backend:
    """Return the agent of a node, or another port of the node's address.

    Raises BadRequestError.
    """
    scheme, _, port = _parts("node", text)
    number = port_number(port) if port else agent.address.port
    if number is None:
        raise _invalid("node", text)
    if number == agent.address.port:
        return Backend(agent.address, agent_of=agent.node)
    return Backend(ServerAddress(scheme, _permitted(agent.address.host), number))


def node_of(objects: Reader, text: str) -> Obj:
    """Return the node that a name in a path means. Raises BadRequestError, NotFoundError."""
    _, name, _ = _parts("node", text)
    return objects.get(NODE, "", name).obj


def _parts(what: str, text: str) -> tuple[str, str, str]:
    """Return scheme, name and port of a name in a path. Raises BadRequestError."""
    parts = text.split(":")
    if len(parts) == 1:
        parts = ["", *parts, ""]
    elif len(parts) == 2:
        parts = ["", *parts]
    if len(parts) != 3 or not parts[1] or parts[0] not in _SCHEMES:
        raise _invalid(what, text)
    scheme, name, port = parts
    return scheme or "http", name, port


def _invalid(what: str, text: str) -> BadRequestError:
    return BadRequestError(f'invalid {what} request "{text}"')


def _permitted(text: str) -> str:
    """Return an address in its usual form. Raises BadRequestError unless it is global unicast."""
    address = ip_address(text)
    if address is None:
        raise BadRequestError("address not allowed")
    found = str(address)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    is_limited = address == ipaddress.ip_address("255.255.255.255")
    if (
        address.is_loopback or address.is_link_local or address.is_multicast
        or address.is_unspecified or is_limited
    ):  # fmt: skip
        raise BadRequestError("address not allowed")
    return found
