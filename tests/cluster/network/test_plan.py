"""The network that a cluster's settings give."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from moorage.cluster.network import PodNetwork, pod_network
from moorage.linux.routes import host_routes
from tests.cluster.test_settings import SETTINGS


def test_network_of_the_settings_with_the_mtu_of_the_host() -> None:
    leases = Path("/run/moorage/0a1b2c3d/leases")
    routes = host_routes()
    network = pod_network(SETTINGS, leases, lambda given: 1450 if given == routes else 0)
    assert network == PodNetwork(
        cluster_id="0a1b2c3d",
        subnet=IPv4Network("10.244.0.0/24"),
        leases=leases,
        mtu=1450,
        services=IPv4Network("10.96.0.0/16"),
        listeners=SETTINGS.listeners,
    )
