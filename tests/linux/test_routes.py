from __future__ import annotations

import struct
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.linux.routes import Route, address_links, host_routes, parse_routes

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"


def row(interface: str, network: str) -> str:
    place = IPv4Network(network)
    numbers = (struct.unpack("=I", part.packed)[0] for part in (place[0], place.netmask))
    address, mask = (f"{number:08X}" for number in numbers)
    return f"{interface}\t{address}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0 "


networks = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(1, 32),
)


@given(st.lists(networks, max_size=6))
def test_routes_are_read_as_the_kernel_writes_them(given_networks: list[IPv4Network]) -> None:
    text = "\n".join((HEAD, *(row("eth0", str(network)) for network in given_networks)))
    assert parse_routes(text) == tuple(Route("eth0", network) for network in given_networks)


@pytest.mark.parametrize("text", ["", HEAD, HEAD + "\n", HEAD + "\neth0\t00"])
def test_a_table_without_routes(text: str) -> None:
    assert parse_routes(text) == ()


def test_host_routes_are_read_and_none_without_ipv4(tmp_path: Path) -> None:
    assert host_routes(tmp_path / "route") == ()
    (tmp_path / "route").write_text(f"{HEAD}\n{row('eth0', '192.0.2.0/24')}\n")
    assert host_routes(tmp_path / "route") == (Route("eth0", IPv4Network("192.0.2.0/24")),)


def test_an_address_with_a_route_of_its_own_has_a_link(tmp_path: Path) -> None:
    rows = (row("veth3", "10.244.0.3/32"), row("eth0", "192.0.2.0/24"), row("eth0", "0.0.0.0/0"))
    (tmp_path / "route").write_text("\n".join((HEAD, *rows)) + "\n")
    assert address_links(tmp_path / "route") == {"10.244.0.3": "veth3"}
    with pytest.raises(FileNotFoundError):
        address_links(tmp_path / "none")
