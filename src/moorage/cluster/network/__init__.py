"""Pod network of a cluster on this host: addresses, bridge, packet filter rules."""

from moorage.cluster.network.conflist import PodNetwork, bridge_name
from moorage.cluster.network.external import pod_bridges
from moorage.cluster.network.plan import pod_network
from moorage.cluster.network.setup import (
    NetworkError,
    NetworkState,
    forget,
    protect,
    remove,
    set_up,
    unprotect,
)
from moorage.cluster.network.subnet import (
    NoSubnetError,
    SubnetTakenError,
    check_subnet,
    choose_subnet,
    host_routes,
    outward_mtu,
)

__all__ = [
    "NetworkError",
    "NetworkState",
    "NoSubnetError",
    "PodNetwork",
    "SubnetTakenError",
    "bridge_name",
    "check_subnet",
    "choose_subnet",
    "forget",
    "host_routes",
    "outward_mtu",
    "pod_bridges",
    "pod_network",
    "protect",
    "remove",
    "set_up",
    "unprotect",
]
