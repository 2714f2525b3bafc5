"""Pod network of a cluster on this host: addresses, bridge, packet filter rules."""

from moorage.cluster.network.setup import (
    NetworkError,
    NetworkState,
    forget,
    keep,
    pod_bridges,
    pod_network,
    protect,
    remove,
    set_up,
    unprotect,
)
from moorage.cluster.network.subnet import (
    NoSubnetError,
    PodNetwork,
    SubnetTakenError,
    bridge_name,
    check_subnet,
    choose_subnet,
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
    "keep",
    "outward_mtu",
    "pod_bridges",
    "pod_network",
    "protect",
    "remove",
    "set_up",
    "unprotect",
]
