"""Backends of a service: its pods, with addresses and ports. Pure.

Source: core/v1 `Service`, API docs "Services without selectors", "EndpointSlices: conditions".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moorage.api.services import Service, ServicePort
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_deleting, is_ended, is_ready


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """A service port as one pod offers it."""

    name: str
    port: int
    protocol: str
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class Backend:
    """One pod behind a service at one address. `is_listed` is published as `ready` to clients."""

    pod: Pod
    address: str
    ports: tuple[Port, ...]
    is_listed: bool
    is_ready: bool

    @property
    def family(self) -> str:
        return "IPv6" if ipaddress.ip_address(self.address).version == 6 else "IPv4"

    @property
    def is_terminating(self) -> bool:
        return is_deleting(self.pod)


def has_backends(service: Service) -> bool:
    """Return whether this controller selects the service's pods."""
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def selects(service: Service, labels: dict[str, str]) -> bool:
    return has_backends(service) and service.spec.selector.items() <= labels.items()


def backends_of(service: Service, pods: Iterable[Pod]) -> list[Backend]:
    """Return one backend per address of each reachable pod, sorted by address."""
    families = service.spec.ip_families or ("IPv4",)
    backends = [
        backend
        for pod in pods
        if selects(service, pod.metadata.labels) and not is_ended(pod)
        for backend in _of_pod(service, pod)
        if backend.family in families
    ]
    return sorted(backends, key=lambda backend: (backend.address, backend.pod.metadata.name))


def hostname_of(service: Service, pod: Pod) -> str:
    """Return the DNS hostname of a headless service's pod; empty if the pod requests none."""
    return pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""


def _of_pod(service: Service, pod: Pod) -> list[Backend]:
    addresses = [pod_ip.ip for pod_ip in pod.status.pod_ips] or [pod.status.pod_ip]
    ports = tuple(sorted(_ports(service, pod)))
    ready = is_ready(pod)
    is_listed = service.spec.publish_not_ready_addresses or (ready and not is_deleting(pod))
    return [Backend(pod, address, ports, is_listed, ready) for address in addresses if address]


def _ports(service: Service, pod: Pod) -> Iterable[Port]:
    for port in service.spec.ports:
        number = _number(port, pod)
        if number:
            protocol = port.protocol or "TCP"
            yield Port(port.name, number, protocol, port.app_protocol or "")


def _number(port: ServicePort, pod: Pod) -> int | None:
    """Resolve a service port's target port on the pod; None if it has no port of that name."""
    target = port.target_port
    if isinstance(target, int):
        return target or port.port
    return next(
        (
            candidate.container_port
            for container in pod.spec.serving
            for candidate in container.ports
            if candidate.name == target
            and (candidate.protocol or "TCP") == (port.protocol or "TCP")
        ),
        None,
    )


# Endpoints subsets: the content of an Endpoints object. Pure. Source: core/v1 `EndpointSubset`.


def subsets_of(service: Service, backends: Iterable[Backend]) -> list[dict[str, Any]]:
    """Group the backends by ports into subsets; addresses not ready are listed separately."""
    grouped: dict[tuple[Port, ...], tuple[list[Any], list[Any]]] = {}
    for backend in backends:
        if backend.is_terminating and not service.spec.publish_not_ready_addresses:
            continue
        if service.spec.ports and not backend.ports:
            continue
        ready, others = grouped.setdefault(backend.ports, ([], []))
        (ready if backend.is_listed else others).append(_address(service, backend))
    return [
        _present(
            addresses=ready, notReadyAddresses=others, ports=[port_object(port) for port in ports]
        )
        for ports, (ready, others) in sorted(grouped.items())
    ]


def port_object(port: Port) -> dict[str, Any]:
    return _present(
        name=port.name, port=port.port, protocol=port.protocol, appProtocol=port.app_protocol
    )


def target_of(backend: Backend) -> dict[str, str]:
    meta = backend.pod.metadata
    return {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def _address(service: Service, backend: Backend) -> dict[str, Any]:
    return _present(
        ip=backend.address,
        hostname=hostname_of(service, backend.pod),
        nodeName=backend.pod.spec.node_name,
        targetRef=target_of(backend),
    )


def _present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}
