"""Columns of services."""

from __future__ import annotations

from moorage.apiserver.registry.columns.ages import UNKNOWN
from moorage.apiserver.registry.columns.cells import CORE, NONE, joined, label_text
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer, selector_column
from moorage.apiserver.registry.kind import Obj

_PENDING = "<pending>"
_SPEC = f"{CORE}.ServiceSpec"


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


def _ports_text(ports: list[Obj]) -> str:
    return joined(_port_text(port) for port in ports)


def _port_text(port: Obj) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', '')}"


PRINTER = printer(
    NAME,
    column("Type", "spec.type", of=_SPEC),
    column(
        "Cluster-IP",
        "spec.clusterIPs",
        absent=NONE,
        show=lambda addresses: addresses[0] if addresses else NONE,
        documented_by=f"{_SPEC}.clusterIP",
    ),
    column("External-IP", _external_addresses, documented_by=f"{_SPEC}.externalIPs"),
    column("Port(s)", "spec.ports", of=_SPEC, absent=NONE, show=_ports_text),
    AGE,
    selector_column(_SPEC, label_text),
)
