from __future__ import annotations

import json

import pytest

from moorage.cluster.network.subnet import bridge_name, write_conflist
from tests.cluster.network.networks import OURS

ROUTED = {
    "type": "ptp",
    "mtu": 1450,
    "ipam": {
        "type": "host-local",
        "dataDir": "/run/moorage/0a1b2c3d/leases",
        "ranges": [
            [
                {
                    "subnet": "198.51.100.0/24",
                    # Those before it are the gateway's and the DNS's.
                    "rangeStart": "198.51.100.3",
                    "gateway": "198.51.100.1",
                }
            ]
        ],
        "routes": [{"dst": "0.0.0.0/0"}],
    },
}
BANDWIDTH = {"type": "bandwidth", "capabilities": {"bandwidth": True}}
PORTMAP = {
    "type": "portmap",
    "capabilities": {"portMappings": True},
    "snat": True,
    "externalSetMarkChain": "MARK",
}


@pytest.mark.parametrize(
    ("mark_chain", "plugins"),
    [
        ("MARK", [ROUTED, BANDWIDTH, PORTMAP]),
        # Without a firewall there are no host ports.
        (None, [ROUTED, BANDWIDTH]),
    ],
)
def test_pods_are_routed_with_addresses_of_the_network(
    mark_chain: str | None, plugins: list[object]
) -> None:
    text = write_conflist(OURS, mark_chain)
    assert json.loads(text) == {
        "cniVersion": "0.4.0",
        "name": "moorage-0a1b2c3d",
        "plugins": plugins,
    }
    assert text.endswith("}\n")


@pytest.mark.parametrize("cluster_id", ["12345678", "1234567890"])
def test_names_the_kernel_takes(cluster_id: str) -> None:
    assert len(bridge_name(cluster_id)) <= 15


@pytest.mark.parametrize("cluster_id", ["12345678901", "öööööö"])
def test_names_the_kernel_does_not_take(cluster_id: str) -> None:
    with pytest.raises(ValueError, match="longer than the 15 bytes"):
        bridge_name(cluster_id)
