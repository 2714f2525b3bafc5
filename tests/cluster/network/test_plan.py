"""The network that a cluster's settings give."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from moorage.cluster.network import PodNetwork, pod_network
from moorage.cluster.network import setup as plan
from moorage.cluster.network.subnet import Route
from tests.cluster.test_settings import SETTINGS


def test_network_of_the_settings_with_the_mtu_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = (Route("eth0", IPv4Network("0.0.0.0/0")),)
    monkeypatch.setattr(plan, "host_routes", lambda: routes)
    monkeypatch.setattr(plan, "outward_mtu", lambda given: 1450 if given == routes else 0)
    leases = Path("/run/moorage/0a1b2c3d/leases")
    assert pod_network(SETTINGS, leases) == PodNetwork(
        cluster_id="0a1b2c3d",
        subnet=IPv4Network("10.244.0.0/24"),
        leases=leases,
        mtu=1450,
        services=IPv4Network("10.96.0.0/16"),
        listeners=SETTINGS.listeners,
    )
