"""Pod subnet of a cluster: a network that nothing on this host uses yet.

Chosen from the host's routes. A cluster keeps the subnet of its first start, so a second cluster
finds the first one's bridge among the routes and takes the next network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from moorage.api.host_ports import Listener
from moorage.cluster.errors import ClusterError
from moorage.linux.routes import ROUTES, Route

# CNI configuration of a cluster's pods, as the engine reads it.
#
# A routed link for each pod from ptp, addresses from host-local, limits from bandwidth, host ports
# from portmap. ptp does not masquerade: it would add and remove a chain for every pod, which takes
# longer than the rest of a pod's network; one rule for the whole network has the same effect (see
# `rules`). Source: CNI specification 0.4.0, the plugins' own documentation.

CNI_VERSION = "0.4.0"
FILE_NAME = "10-moorage.conflist"

_BRIDGE_PREFIX = "moor-"
_NETWORK_PREFIX = "moorage-"
_INTERFACE_NAME_BYTES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlaces:
    """Where the kernel shows interfaces and routes, and where libcni caches plugins' results."""

    interfaces: Path = Path("/sys/class/net")
    routes: Path = ROUTES
    cni_cache: Path = Path("/var/lib/cni/results")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetwork:
    """The network of one cluster's pods.

    `leases` is the directory of host-local's address leases, with the engine's state, since a
    reboot ends both. `mtu` is in bytes. `services` is the network of the cluster's service
    addresses, None to add no rules for it; `listeners` are the cluster's own on this host.
    """

    cluster_id: str
    subnet: IPv4Network
    leases: Path
    mtu: int
    services: IPv4Network | None = None
    listeners: tuple[Listener, ...] = ()
    places: HostPlaces = HostPlaces()

    @property
    def name(self) -> str:
        """The network's CNI name, which also marks the rules that plugins add for it."""
        return f"{_NETWORK_PREFIX}{self.cluster_id}"

    @property
    def bridge(self) -> str:
        """The interface name of the bridge."""
        return bridge_name(self.cluster_id)

    @property
    def gateway(self) -> IPv4Address:
        """The host's address on the bridge."""
        return self.subnet[1]

    @property
    def dns_address(self) -> IPv4Address:
        """The address of the cluster DNS on the bridge."""
        return self.subnet[2]


def bridge_name(cluster_id: str) -> str:
    """Return the interface name of a cluster's bridge. Raises ValueError for a long cluster ID."""
    name = f"{_BRIDGE_PREFIX}{cluster_id}"
    if len(name.encode()) > _INTERFACE_NAME_BYTES:
        raise ValueError(f"{name!r} is longer than the {_INTERFACE_NAME_BYTES} bytes of a name")
    return name


def write_conflist(network: PodNetwork, mark_chain: str | None) -> str:
    """Return the network's conflist as text.

    `mark_chain` is the chain that marks packets of host ports for masquerading; None if iptables is
    not usable, which leaves host ports out.
    """
    plugins = [_routed(network), {"type": "bandwidth", "capabilities": {"bandwidth": True}}]
    if mark_chain is not None:
        plugins.append(_portmap(mark_chain))
    document = {"cniVersion": CNI_VERSION, "name": network.name, "plugins": plugins}
    return json.dumps(document, indent=2) + "\n"


def _routed(network: PodNetwork) -> dict[str, object]:
    return {
        "type": "ptp",
        "mtu": network.mtu,
        "ipam": {
            "type": "host-local",
            "dataDir": str(network.leases),
            "ranges": [
                [
                    {
                        "subnet": str(network.subnet),
                        "rangeStart": str(network.dns_address + 1),
                        "gateway": str(network.gateway),
                    }
                ]
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }


def _portmap(mark_chain: str) -> dict[str, object]:
    return {
        "type": "portmap",
        "capabilities": {"portMappings": True},
        "snat": True,
        "externalSetMarkChain": mark_chain,
    }


POOL = IPv4Network("10.244.0.0/14")
PREFIX_LENGTH = 24
DEFAULT_MTU = 1500

_DEFAULT_ROUTE = IPv4Network("0.0.0.0/0")
_HOST_PREFIX = 32


class NoSubnetError(ClusterError):
    """Every network of the pool is in use on this host."""

    def __init__(self, pool: IPv4Network) -> None:
        super().__init__(
            f"every /{PREFIX_LENGTH} network of {pool} is in use on this host; "
            "choose one with --pod-network"
        )


class SubnetTakenError(ClusterError):
    """The network of a cluster is in use on this host by something else."""

    def __init__(
        self, subnet: IPv4Network, route: Route, remedy: str = "choose another with --pod-network"
    ) -> None:
        super().__init__(
            f"the pod network {subnet} overlaps {route.network}, which this host reaches through "
            f"{route.interface}; {remedy}"
        )
        self.subnet = subnet
        self.route = route


def choose_subnet(routes: Iterable[Route], reserved: Iterable[IPv4Network] = ()) -> IPv4Network:
    """Return the first network of the pool that overlaps no route and nothing reserved.

    Raises NoSubnetError when there is none.
    """
    used = [*(route.network for route in routes if route.network != _DEFAULT_ROUTE), *reserved]
    for candidate in POOL.subnets(new_prefix=PREFIX_LENGTH):
        if not any(candidate.overlaps(network) for network in used):
            return candidate
    raise NoSubnetError(POOL)


def check_subnet(subnet: IPv4Network, routes: Iterable[Route], bridge: str) -> None:
    """Raise SubnetTakenError if the subnet overlaps a route other than the cluster's own.

    Those are the bridge's, and while it is there those of its pods, which may outlive the cluster.
    """
    routes = tuple(routes)
    is_made = any(route.interface == bridge and route.network == subnet for route in routes)
    for route in routes:
        if is_made and route.network.prefixlen == _HOST_PREFIX and route.network.subnet_of(subnet):
            continue
        is_other = route.interface != bridge and route.network != _DEFAULT_ROUTE
        if is_other and subnet.overlaps(route.network):
            raise SubnetTakenError(subnet, route)


def default_interface(routes: Iterable[Route]) -> str | None:
    """Return the interface of the default route, None without one."""
    return next((route.interface for route in routes if route.network == _DEFAULT_ROUTE), None)


def outward_mtu(routes: Iterable[Route]) -> int:
    """Return the MTU of the default route's interface in bytes; 1500 without one.

    Pods with a larger MTU would lose packets.
    """
    interface = default_interface(routes)
    if interface is None:
        return DEFAULT_MTU
    try:
        return int(Path("/sys/class/net", interface, "mtu").read_text())
    except FileNotFoundError:
        # The interface has gone since the routes were read.
        return DEFAULT_MTU
