from __future__ import annotations

import json

import pytest

from moorage.cluster.network.conflist import bridge_name, write_conflist
from tests.cluster.network.networks import OURS


def test_the_bridge_hands_out_the_networks_addresses() -> None:
    document = json.loads(write_conflist(OURS, "MARK"))
    assert (document["cniVersion"], document["name"]) == ("0.4.0", "moorage-0a1b2c3d")
    bridge, ports = document["plugins"]
    assert (bridge["type"], bridge["bridge"], bridge["mtu"]) == ("bridge", "moor-0a1b2c3d", 1450)
    assert bridge["isGateway"]
    assert bridge["hairpinMode"]
    assert "ipMasq" not in bridge
    assert bridge["ipam"]["ranges"] == [[{"subnet": "198.51.100.0/24", "gateway": "198.51.100.1"}]]
    assert bridge["ipam"]["dataDir"] == "/run/moorage/0a1b2c3d/leases"
    assert (ports["type"], ports["externalSetMarkChain"]) == ("portmap", "MARK")


def test_without_a_firewall_there_are_no_host_ports() -> None:
    plugins = json.loads(write_conflist(OURS, None))["plugins"]
    assert [plugin["type"] for plugin in plugins] == ["bridge"]


@pytest.mark.parametrize("cluster_id", ["12345678", "1234567890"])
def test_names_the_kernel_takes(cluster_id: str) -> None:
    assert len(bridge_name(cluster_id)) <= 15


@pytest.mark.parametrize("cluster_id", ["12345678901", "öööööö"])
def test_names_the_kernel_does_not_take(cluster_id: str) -> None:
    with pytest.raises(ValueError, match="longer than the 15 bytes"):
        bridge_name(cluster_id)
