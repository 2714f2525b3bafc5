"""Port resolution for probes and hooks. Source: core/v1 IntOrString ports."""

from __future__ import annotations

from moorage.node.pod_facts.labels import AnyContainer


def resolve_port(port: int | str, container: AnyContainer) -> int:
    """Return the port number. Raises ValueError for an undeclared name or an invalid number."""
    number = _number(port)
    if number is None:
        for declared in container.ports:
            if declared.name == port:
                number = declared.container_port
                break
        else:
            raise ValueError(f"couldn't find port: {port!r} on container {container.name}")
    if not 0 < number < 65536:
        raise ValueError(f"invalid port number: {number}")
    return number


def _number(port: int | str) -> int | None:
    if isinstance(port, int):
        return port
    return int(port) if port.isdigit() else None
