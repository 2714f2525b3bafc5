from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from moorage.linux.arp import announce, announcement
from moorage.linux.namespaces import NETWORK, in_namespace

_MAC = bytes.fromhex("020000000007")
_ADDRESS = IPv4Address("192.0.2.7")


def test_an_announcement_is_a_broadcast_request_for_the_senders_own_address() -> None:
    frame = announcement(_MAC, _ADDRESS)
    assert frame.hex() == (
        "ffffffffffff" "020000000007" "0806"  # Ethernet: to all, from the sender, ARP
        "0001" "0800" "06" "04" "0001"  # of Ethernet and IPv4, a request
        "020000000007" "c0000207"  # sender
        "000000000000" "c0000207"  # target
    )  # fmt: skip


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    """Two network namespaces that a link `eth0` joins."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("making network namespaces needs root and ip")
    here, there = (f"test-{secrets.token_hex(4)}" for _ in range(2))
    try:
        for name in (here, there):
            _ip("netns", "add", name)
        made = subprocess.run(
            f"ip -n {here} link add eth0 type veth peer name eth0 netns {there}".split(),
            check=False,
        )
        if made.returncode:
            pytest.skip("this kernel has no veth devices")
        for name, address in ((here, "192.0.2.1/24"), (there, f"{_ADDRESS}/24")):
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "addr", "add", address, "dev", "eth0")
        yield here, there
    finally:
        for name in (here, there):
            subprocess.run(["ip", "netns", "del", name], check=False)


async def test_a_neighbour_that_knew_another_mac_address_has_the_new_one_at_once(
    pair: tuple[str, str],
) -> None:
    here, there = pair
    former = "02:00:00:00:00:01"
    _ip("-n", here, "neigh", "replace", str(_ADDRESS), "lladdr", former, "dev", "eth0",
        "nud", "stale")  # fmt: skip

    def work() -> None:
        announce("eth0", [_ADDRESS])

    await in_namespace(Path("/run/netns", there), NETWORK, work)
    mac = _ip("netns", "exec", there, "cat", "/sys/class/net/eth0/address").strip()
    neighbours = _ip("-n", here, "neigh", "show", str(_ADDRESS))
    assert former not in neighbours
    assert mac in neighbours


async def test_an_interface_that_is_no_ethernet_announces_nothing(pair: tuple[str, str]) -> None:
    here, _ = pair
    _ip("-n", here, "link", "set", "lo", "up")
    await in_namespace(Path("/run/netns", here), NETWORK, lambda: announce("lo", [_ADDRESS]))
    sent = _ip("-n", here, "-s", "link", "show", "lo").split("TX:")[1].splitlines()[1].split()[1]
    assert sent == "0"


async def test_an_interface_that_is_missing_is_an_error(pair: tuple[str, str]) -> None:
    file = Path("/run/netns", pair[0])
    with pytest.raises(OSError, match="No such device"):
        await in_namespace(file, NETWORK, lambda: announce("eth9", [_ADDRESS]))


def _ip(*arguments: str) -> str:
    return subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
