"""Network of a class: what its pods may reach whatever policies say.

    default      what NetworkPolicies leave, as in Kubernetes
    restricted   the cluster DNS, and what egress policies name; never the node, the API, nor the
                 link-local addresses at which clouds serve credentials
    none         nothing, in neither direction, but for the node's own probes

An annotation of the RuntimeClass says it, so that it holds for every handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from moorage.api.runtime_group import RuntimeClass
from moorage.network.frame import Family

ANNOTATION: Final = "runtime.moorage.dev/network"
_LINK_LOCAL: Final = {"ip": "169.254.0.0/16", "ip6": "{ fe80::/10, fd00:ec2::254 }"}


class ClassNetwork(StrEnum):
    """Values of the annotation."""

    DEFAULT = "default"
    RESTRICTED = "restricted"
    NONE = "none"


def network_of(runtime_class: RuntimeClass) -> ClassNetwork:
    """Return a class's network; `none` for an unknown value, which was to shut something."""
    text = runtime_class.metadata.annotations.get(ANNOTATION, ClassNetwork.DEFAULT)
    try:
        return ClassNetwork(text)
    except ValueError:
        return ClassNetwork.NONE


def refusal(family: Family) -> str:
    """Return the rule that answers what is not allowed."""
    return f"counter reject with {family.prohibited}"


def egress_guard(family: Family, dns: str) -> Iterator[str]:
    """Yield the rules of `restricted` that come before those of policies; `dns` is an address."""
    if dns and (":" in dns) == (family.name == "ip6"):
        for protocol in ("udp", "tcp"):
            yield f"{family.name} daddr {dns} {protocol} dport 53 return"
    yield f"fib daddr type local {refusal(family)}"
    yield f"{family.name} daddr {_LINK_LOCAL[family.name]} {refusal(family)}"
