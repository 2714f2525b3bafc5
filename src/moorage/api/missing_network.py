"""Missing network: what users are warned of where objects would do nothing in silence.

With an external engine (`moor up --cri`), nothing of ours routes the addresses of Services and
enforces NetworkPolicies; and no Ingress is served without a controller. One text for the `Warning`
header of the request and for the event on the object.
"""

from __future__ import annotations

from typing import Final

REASON: Final = "NotImplemented"

SERVICES: Final = "services"
INGRESSES: Final = "ingresses"
POLICIES: Final = "networkpolicies"

NOTHING: Final[frozenset[str]] = frozenset()
CONTROLLER: Final = frozenset({INGRESSES})
"""What a cluster lacks that routes Services and enforces policies."""
EVERYTHING: Final = frozenset({SERVICES, INGRESSES, POLICIES})
"""What a cluster lacks whose pods' network is another's."""

INGRESS: Final = (
    "nothing serves this Ingress: the cluster has no IngressClass, so no ingress controller is "
    "installed; install one by its chart"
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
