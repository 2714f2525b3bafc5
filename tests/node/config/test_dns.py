from __future__ import annotations

from typing import Any

import pytest

from moorage.node.config.dns import PodDns, Resolver, parse_resolv_conf, pod_dns
from tests.node.objects import a_pod

NODE = Resolver(("192.0.2.53",), ("corp.example",), ("timeout:2",))
CLUSTER = ("10.96.0.10",)
SEARCHES = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example")


def dns(servers: tuple[str, ...] = CLUSTER, **spec: Any) -> PodDns:
    return pod_dns(a_pod(**spec), NODE, servers, "cluster.local")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Resolver()),
        ("# a\n; b\nnameserver 1.1.1.1\nnameserver 8.8.8.8\n", Resolver(("1.1.1.1", "8.8.8.8"))),
        ("search a.example b.example.\n", Resolver((), ("a.example", "b.example"))),
        ("search a\nsearch b\n", Resolver((), ("b",))),
        ("search .\n", Resolver()),
        (
            "options ndots:1 edns0\noptions ndots:2\n",
            Resolver((), (), ("ndots:2", "edns0")),
        ),
        ("nameserver\n\nfamily inet4\n", Resolver()),
    ],
    ids=["empty", "servers", "searches", "last search", "root", "options", "odd lines"],
)
def test_reading_resolv_conf(text: str, wanted: Resolver) -> None:
    assert parse_resolv_conf(text) == wanted


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, Resolver(CLUSTER, SEARCHES, ("ndots:5",))),
        ({"dnsPolicy": "ClusterFirst"}, Resolver(CLUSTER, SEARCHES, ("ndots:5",))),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, NODE),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            Resolver(CLUSTER, SEARCHES, ("ndots:5",)),
        ),
        ({"dnsPolicy": "Default"}, NODE),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"], "searches": ["x"]}},
            Resolver(("9.9.9.9",), ("x",)),
        ),
    ],
    ids=["unset", "cluster", "cluster on host", "with host net", "default", "none"],
)
def test_policies(spec: dict[str, Any], wanted: Resolver) -> None:
    assert dns(**spec) == PodDns(wanted)


def test_without_a_cluster_dns_the_nodes_own_serves() -> None:
    assert dns(()) == PodDns(NODE, lacks_cluster_dns=True)
    assert dns((), dnsPolicy="Default") == PodDns(NODE)


def test_the_pods_configuration_is_added_and_its_options_win() -> None:
    resolver = dns(
        dnsConfig={
            "nameservers": ["10.96.0.10", "1.1.1.1"],
            "searches": ["cluster.local", "mine.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        }
    ).resolver
    assert resolver.servers == ("10.96.0.10", "1.1.1.1")
    assert resolver.searches == (*SEARCHES, "mine.example")
    assert resolver.options == ("ndots:2", "edns0")


def test_excess_nameservers_are_omitted_and_reported() -> None:
    dns_config = dns(
        dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4"]}
    )
    assert dns_config.resolver.servers == ("1.1.1.1", "2.2.2.2", "3.3.3.3")
    assert dns_config.complaints == (
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied "
        "nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3",
    )


@pytest.mark.parametrize(
    ("searches", "kept"),
    [
        ([f"s{index}" for index in range(33)], 32),
        (["a" * 250] * 1 + [f"{index}" + "b" * 240 for index in range(9)], 8),
        (["ok", "c" * 254], 1),
    ],
    ids=["too many", "too long together", "one too long"],
)
def test_excess_search_domains_are_omitted_and_reported(searches: list[str], kept: int) -> None:
    dns_config = dns(dnsPolicy="None", dnsConfig={"searches": searches})
    assert dns_config.resolver.searches == tuple(searches[:kept])
    assert dns_config.complaints[0].startswith(
        "Search Line limits were exceeded, some search paths have been omitted, the applied "
        f"search line is: {searches[0]}"
    )
