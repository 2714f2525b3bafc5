"""Service environment variables of a container.

Source: core/v1 "Environment variables", kubelet `envvars.FromServices`. Every pod gets the API
server's service; those of its namespace only with `enableServiceLinks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.api.services import Service, ServicePort

_DEFAULT_NAMESPACE = "default"
_API_SERVICE = "kubernetes"


def service_environment(
    services: Iterable[Service],
    namespace: str,
    *,
    has_links: bool,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables, NAME → value. `overrides` take precedence."""
    variables: dict[str, str] = {}
    own: list[Service] = []
    for service in services:
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        meta = service.metadata
        if has_links and meta.namespace == namespace:
            own.append(service)
        elif meta.namespace == _DEFAULT_NAMESPACE and meta.name == _API_SERVICE:
            variables |= variables_of(service)
    for service in own:
        variables |= variables_of(service)
    return variables | dict(overrides)


def variables_of(service: Service) -> dict[str, str]:
    """Return the variables of one service: host, ports, and Docker link variables."""
    prefix = _variable(service.metadata.name)
    address = service.spec.cluster_ip
    first = service.spec.ports[0]
    variables = {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(first.port),
        f"{prefix}_PORT": _url(first, address),
    }
    for port in service.spec.ports:
        if port.name:
            variables[f"{prefix}_SERVICE_PORT_{_variable(port.name)}"] = str(port.port)
        link = f"{prefix}_PORT_{port.port}_{_protocol(port)}"
        variables[link] = _url(port, address)
        variables[f"{link}_PROTO"] = _protocol(port).lower()
        variables[f"{link}_PORT"] = str(port.port)
        variables[f"{link}_ADDR"] = address
    return variables


def _protocol(port: ServicePort) -> str:
    return (port.protocol or "TCP").upper()


def _url(port: ServicePort, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{_protocol(port).lower()}://{host}:{port.port}"


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
