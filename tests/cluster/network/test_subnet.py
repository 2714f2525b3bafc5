from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.network.subnet import (
    DEFAULT_MTU,
    POOL,
    NoSubnetError,
    SubnetTakenError,
    check_subnet,
    choose_subnet,
    default_interface,
    outward_mtu,
)
from moorage.linux.routes import Route
from tests.linux.test_routes import networks

DEFAULT = Route("eth0", IPv4Network("0.0.0.0/0"))
SERVICES = IPv4Network("10.96.0.0/16")
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


def test_the_way_out() -> None:
    assert default_interface([Route("lo", IPv4Network("127.0.0.0/8")), DEFAULT]) == "eth0"
    assert default_interface([]) is None
    assert outward_mtu([]) == DEFAULT_MTU
    assert outward_mtu([Route("lo", DEFAULT.network)]) == 65536
    assert outward_mtu([Route("gone0", DEFAULT.network)]) == DEFAULT_MTU
    assert IPv4Address("10.244.0.1") in POOL
