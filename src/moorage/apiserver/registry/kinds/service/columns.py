"""Columns of services."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.ages import UNKNOWN
from moorage.apiserver.registry.columns.cells import (
    AGE,
    CORE,
    NAME,
    NONE,
    age_of,
    joined,
    label_text,
    name_of,
)
from moorage.apiserver.registry.kind import Column, Obj, Printer

_PENDING = "<pending>"


def _service_cells(service: Obj, now: float) -> list[Any]:
    spec = service.get("spec", {})
    addresses = spec.get("clusterIPs") or [NONE]
    return [
        name_of(service),
        spec.get("type", ""),
        addresses[0],
        _external_addresses(service),
        joined(_port_text(port) for port in spec.get("ports") or ()),
        age_of(service, now),
        label_text(spec.get("selector")),
    ]


def _external_addresses(service: Obj) -> str:
    spec = service.get("spec", {})
    own = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return joined(own)
        case "LoadBalancer":
            ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
            given = {
                ingress_point.get("ip") or ingress_point.get("hostname") or ""
                for ingress_point in ingress
            } - {""}
            return ",".join([*sorted(given), *own]) or _PENDING
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return UNKNOWN


def _port_text(port: Obj) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', '')}"


PRINTER = Printer(
    columns=(
        NAME,
        Column("Type", documented_by=f"{CORE}.ServiceSpec.type"),
        Column("Cluster-IP", documented_by=f"{CORE}.ServiceSpec.clusterIP"),
        Column("External-IP", documented_by=f"{CORE}.ServiceSpec.externalIPs"),
        Column("Port(s)", documented_by=f"{CORE}.ServiceSpec.ports"),
        AGE,
        Column("Selector", documented_by=f"{CORE}.ServiceSpec.selector", priority=1),
    ),
    cells=_service_cells,
)
