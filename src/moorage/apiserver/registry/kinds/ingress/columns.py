"""Columns of ingresses."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import AGE, NAME, NONE, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer

_SHOWN_HOSTS = 3


def _cells(ingress: Obj, now: float) -> list[Any]:
    spec = ingress.get("spec", {})
    return [
        name_of(ingress),
        spec.get("ingressClassName", NONE),
        _hosts(spec.get("rules", ())),
        _addresses(ingress.get("status", {}).get("loadBalancer", {})),
        "80, 443" if spec.get("tls") else "80",
        age_of(ingress, now),
    ]


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


PRINTER = Printer(
    columns=(
        NAME,
        Column("Class", description="Name of the IngressClass"),
        Column("Hosts", description="Hosts of the rules"),
        Column("Address", description="Addresses of the load balancer"),
        Column("Ports", description="Ports that are open: 443 too with TLS"),
        AGE,
    ),
    cells=_cells,
)
