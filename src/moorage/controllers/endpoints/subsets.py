"""Endpoints subsets: the content of an Endpoints object. Pure. Source: core/v1 `EndpointSubset`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.api.services import Service
from moorage.controllers.endpoints.backends import Backend, Port, hostname_of


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
