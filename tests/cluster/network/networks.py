"""Two clusters' networks, on addresses that are for documents only."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from moorage.cluster.network import PodNetwork

OURS = PodNetwork(
    cluster_id="0a1b2c3d",
    subnet=IPv4Network("198.51.100.0/24"),
    leases=Path("/run/moorage/0a1b2c3d/leases"),
    mtu=1450,
)
THEIRS = PodNetwork(
    cluster_id="deadbeef",
    subnet=IPv4Network("203.0.113.0/24"),
    leases=Path("/run/moorage/deadbeef/leases"),
    mtu=1500,
)
