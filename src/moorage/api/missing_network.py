"""Missing network: what users are warned of while a cluster of ours has no service proxy.

The addresses of services lead nowhere, no ingress controller is there, and nothing enforces network
policies: such objects are stored and would do nothing in silence. One text for the `Warning` header
of the request and for the event on the object.
"""

from __future__ import annotations

from typing import Final

REASON: Final = "NotImplemented"

INGRESS: Final = (
    "nothing serves this Ingress: the cluster has no ingress controller, unless you have installed "
    "one that reaches pods by their addresses"
)
NETWORK_POLICY: Final = (
    "nothing enforces this NetworkPolicy: the cluster stores network policies only, and pods reach "
    "each other, this machine and the internet"
)
_SERVICE: Final = (
    "nothing routes the cluster IP of this Service: connections to it are refused; use a headless "
    "Service (clusterIP: None) and the addresses of its pods"
)


def service_warning(type_: str, cluster_ip: str) -> str:
    """Return the warning about a Service; empty for one without a cluster IP."""
    return "" if type_ == "ExternalName" or cluster_ip == "None" else _SERVICE
