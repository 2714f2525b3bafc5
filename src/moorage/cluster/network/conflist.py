"""CNI configuration of a cluster's pods, as the engine reads it.

One bridge for the cluster, addresses from host-local, host ports from portmap. The bridge plugin
does not masquerade: it would add and remove a chain for every pod, which takes longer than the rest
of a pod's network; one rule for the whole network has the same effect (see `rules`).
Source: CNI specification 0.4.0, the plugins' own documentation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from moorage.api.host_ports import Listener

CNI_VERSION = "0.4.0"
FILE_NAME = "10-moorage.conflist"

_BRIDGE_PREFIX = "moor-"
_NETWORK_PREFIX = "moorage-"
_INTERFACE_NAME_BYTES = 15


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
    plugins = [_bridge(network)]
    if mark_chain is not None:
        plugins.append(_portmap(mark_chain))
    document = {"cniVersion": CNI_VERSION, "name": network.name, "plugins": plugins}
    return json.dumps(document, indent=2) + "\n"


def _bridge(network: PodNetwork) -> dict[str, object]:
    return {
        "type": "bridge",
        "bridge": network.bridge,
        "isGateway": True,
        "hairpinMode": True,
        "mtu": network.mtu,
        "ipam": {
            "type": "host-local",
            "dataDir": str(network.leases),
            "ranges": [[{"subnet": str(network.subnet), "gateway": str(network.gateway)}]],
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
