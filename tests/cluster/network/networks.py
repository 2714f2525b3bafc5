"""Two clusters' networks, on addresses that are for documents only."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from moorage.api.host_ports import Listener
from moorage.cluster.network import PodNetwork

SERVICES = IPv4Network("10.96.0.0/16")
OURS = PodNetwork(
    cluster_id="0a1b2c3d",
    subnet=IPv4Network("198.51.100.0/24"),
    leases=Path("/run/moorage/0a1b2c3d/leases"),
    mtu=1450,
    services=SERVICES,
    listeners=(Listener("API server", "127.0.0.1", 6443), Listener("agent", "192.0.2.1", 10250)),
)
THEIRS = PodNetwork(
    cluster_id="deadbeef",
    subnet=IPv4Network("203.0.113.0/24"),
    leases=Path("/run/moorage/deadbeef/leases"),
    mtu=1500,
    services=SERVICES,
    listeners=(Listener("API server", "127.0.0.1", 6444),),
)
