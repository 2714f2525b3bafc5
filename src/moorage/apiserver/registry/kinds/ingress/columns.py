"""Columns of ingresses."""

from __future__ import annotations

from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import Obj

_SHOWN_HOSTS = 3


def _hosts(rules: list[Obj]) -> str:
    """Return the first hosts. A rule after the third host is counted even if it has no host."""
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == _SHOWN_HOSTS:
            return f"{','.join(hosts)} + {len(rules) - _SHOWN_HOSTS} more..."
        if rule.get("host"):
            hosts.append(rule["host"])
    return ",".join(hosts) or "*"


def _addresses(load_balancer: Obj) -> str:
    points = load_balancer.get("ingress", ())
    return ",".join(sorted({p.get("ip") or p.get("hostname") or "" for p in points} - {""}))


PRINTER = printer(
    NAME,
    column("Class", "spec.ingressClassName", absent=NONE, description="Name of the IngressClass"),
    column("Hosts", "spec.rules", absent="*", show=_hosts, description="Hosts of the rules"),
    column(
        "Address",
        "status.loadBalancer",
        show=_addresses,
        description="Addresses of the load balancer",
    ),
    column(
        "Ports",
        "spec.tls",
        absent="80",
        show=lambda tls: "80, 443" if tls else "80",
        description="Ports that are open: 443 too with TLS",
    ),
    AGE,
)
