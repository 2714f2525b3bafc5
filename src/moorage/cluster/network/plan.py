"""Network plan: the pod network that a cluster's settings and the host's routes give."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from moorage.cluster.network.conflist import PodNetwork
from moorage.cluster.network.subnet import host_routes, outward_mtu
from moorage.cluster.settings import Settings


def pod_network(settings: Settings, leases: Path) -> PodNetwork:
    """Return the pod network; `leases` is the directory of its address leases."""
    return PodNetwork(
        cluster_id=settings.cluster_id,
        subnet=IPv4Network(settings.pod_network),
        leases=leases,
        mtu=outward_mtu(host_routes()),
        services=IPv4Network(settings.service_network),
        listeners=settings.listeners,
    )
