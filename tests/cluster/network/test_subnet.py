from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.network.subnet import (
    DEFAULT_MTU,
    POOL,
    NoSubnetError,
    Route,
    SubnetTakenError,
    check_subnet,
    choose_subnet,
    default_interface,
    host_routes,
    outward_mtu,
    parse_routes,
)

DEFAULT = Route("eth0", IPv4Network("0.0.0.0/0"))
SERVICES = IPv4Network("10.96.0.0/16")
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
near_the_pool = st.builds(
    lambda offset, length: IPv4Network((int(POOL[0]) + offset, length), strict=False),
    st.integers(0, POOL.num_addresses - 1),
    st.integers(16, 32),
)


@given(st.lists(st.one_of(networks, near_the_pool), max_size=12))
def test_what_is_chosen_overlaps_nothing(used: list[IPv4Network]) -> None:
    routes = [DEFAULT, *(Route("x", network) for network in used)]
    try:
        chosen = choose_subnet(routes, [SERVICES])
    except NoSubnetError:
        assert any(POOL.overlaps(network) and network.prefixlen <= 16 for network in used)
        return
    assert chosen.subnet_of(POOL)
    assert chosen.prefixlen == 24
    assert not any(chosen.overlaps(network) for network in (*used, SERVICES))
    check_subnet(chosen, routes, "moor-x")


def test_clusters_that_start_one_after_the_other_get_networks_of_their_own() -> None:
    routes = [DEFAULT]
    for _ in range(5):
        routes.append(Route(f"moor-{len(routes)}", choose_subnet(routes)))
    chosen = [route.network for route in routes[1:]]
    assert chosen == [IPv4Network(f"10.244.{number}.0/24") for number in range(5)]


def test_host_route_over_the_whole_pool_is_an_error() -> None:
    with pytest.raises(NoSubnetError) as refused:
        choose_subnet([Route("vpn0", IPv4Network("10.0.0.0/8"))])
    assert str(refused.value) == (
        "every /24 network of 10.244.0.0/14 is in use on this host; choose one with --pod-network"
    )


def test_overlap_is_named_with_what_to_do() -> None:
    with pytest.raises(SubnetTakenError) as refused:
        check_subnet(
            IPv4Network("10.244.0.0/24"), [Route("tun0", IPv4Network("10.244.0.0/16"))], "moor-own"
        )
    assert str(refused.value) == (
        "the pod network 10.244.0.0/24 overlaps 10.244.0.0/16, which this host reaches through "
        "tun0; choose another with --pod-network"
    )


@pytest.mark.parametrize(
    ("routes", "is_taken"),
    [
        ((), False),
        ((DEFAULT,), False),
        ((Route("moor-own", IPv4Network("10.244.0.0/24")),), False),
        # Its pods, which outlive a cluster whose processes were killed.
        ((Route("moor-own", IPv4Network("10.244.0.0/24")),
          Route("veth1", IPv4Network("10.244.0.7/32"))), False),
        ((Route("docker0", IPv4Network("172.17.0.0/16")),), False),
        ((Route("docker0", IPv4Network("10.244.0.0/16")),), True),
        ((Route("tun0", IPv4Network("10.244.0.7/32")),), True),
    ],
)  # fmt: skip
def test_only_anothers_route_is_in_the_way(routes: tuple[Route, ...], is_taken: bool) -> None:
    subnet = IPv4Network("10.244.0.0/24")
    if not is_taken:
        check_subnet(subnet, routes, "moor-own")
        return
    with pytest.raises(SubnetTakenError, match=routes[0].interface):
        check_subnet(subnet, routes, "moor-own")


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


def test_the_way_out() -> None:
    assert default_interface([Route("lo", IPv4Network("127.0.0.0/8")), DEFAULT]) == "eth0"
    assert default_interface([]) is None
    assert outward_mtu([]) == DEFAULT_MTU
    assert outward_mtu([Route("lo", DEFAULT.network)]) == 65536
    assert outward_mtu([Route("gone0", DEFAULT.network)]) == DEFAULT_MTU
    assert IPv4Address("10.244.0.1") in POOL
