"""Rules of Services: which maps lead where, for each kind of address and policy."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.network.frame import IPV4
from moorage.network.services.rules import service_fragment
from moorage.network.tables import EMPTY, Fragment
from tests.network.objects import HERE, PODS, a_service, a_slice, an_endpoint

A, B = "10.244.0.3", "10.244.0.4"
ELSEWHERE = "192.0.2.9"


def fragment(*endpoints: Any, **spec: Any) -> Fragment:
    return service_fragment(a_service(**spec), [a_slice(*endpoints)], IPV4, HERE, PODS)


def test_a_cluster_ip_leads_to_its_endpoints() -> None:
    made = fragment(A, B)
    assert made.elements == {
        "cluster-ips": {"10.96.0.7 . tcp . 80": "goto pick-tcp-2"},
        "endpoints-tcp": {
            "10.96.0.7 . 80 . 0": f"{A} . 8080", "10.96.0.7 . 80 . 1": f"{B} . 8080",
        },
        "hairpins": {f"{A} . {A}": "", f"{B} . {B}": ""},
    }  # fmt: skip
    key = "ip daddr . tcp dport . numgen random mod 2"
    assert made.chains == {"pick-tcp-2": (f"meta l4proto tcp dnat ip to {key} map @endpoints-tcp",)}


def test_a_node_port_leads_to_its_endpoints() -> None:
    made = fragment(A, type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    assert made.elements["node-ports"] == {"tcp . 30080": "goto pick-node-tcp-1"}
    assert made.elements["node-endpoints-tcp"] == {"30080 . 0": f"{A} . 8080"}


@pytest.mark.parametrize(
    "spec",
    [
        {"ip": "None"}, {"ip": ""}, {"type": "ExternalName"},
        {"labels": {"service.kubernetes.io/service-proxy-name": "other"}},
    ],
)  # fmt: skip
def test_services_that_are_not_routed_here_have_no_rules(spec: Any) -> None:
    assert fragment(A, **spec) == EMPTY
    assert service_fragment(None, [], IPV4, HERE, PODS) == EMPTY


def test_addresses_outside_lead_to_the_same_endpoints() -> None:
    made = fragment(
        A, type="LoadBalancer", externalIPs=["198.51.100.1", "2001:db8::1"],
        status={"loadBalancer": {"ingress": [
            {"ip": "198.51.100.2"}, {"ip": "198.51.100.3", "ipMode": "Proxy"}, {"hostname": "a"},
        ]}},
    )  # fmt: skip
    assert made.elements["external-ips"] == {
        "198.51.100.1 . tcp . 80": "goto pick-tcp-1", "198.51.100.2 . tcp . 80": "goto pick-tcp-1",
    }  # fmt: skip


def test_without_endpoints_connections_are_refused() -> None:
    made = fragment(type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    assert made.elements == {
        "no-endpoints": {"10.96.0.7 . tcp . 80": "jump refuse"},
        "no-endpoint-ports": {"tcp . 30080": "jump refuse"},
    }


def test_with_endpoints_elsewhere_alone_a_local_policy_drops() -> None:
    """As upstream: a load balancer tries another node then."""
    made = fragment(
        an_endpoint(B, node="n2"), type="NodePort", externalTrafficPolicy="Local",
        ports=[{"port": 80, "nodePort": 30080}],
    )  # fmt: skip
    assert made.elements["no-endpoint-ports"] == {"tcp . 30080": "drop"}
    assert made.elements["cluster-ips"] == {"10.96.0.7 . tcp . 80": "goto pick-tcp-1"}


def test_packets_to_what_is_no_pod_here_are_masqueraded() -> None:
    made = fragment(A, an_endpoint(ELSEWHERE))
    assert made.elements["cluster-ips"] == {"10.96.0.7 . tcp . 80": "goto pick-tcp-2-masquerade"}
    (rules,) = made.chains.values()
    assert rules[0].startswith("meta mark set meta mark or 0x4000 meta l4proto tcp dnat")
    assert made.elements["hairpins"] == {f"{A} . {A}": ""}


def test_with_affinity_a_client_stays() -> None:
    made = fragment(
        A, B, sessionAffinity="ClientIP", type="NodePort",
        ports=[{"port": 80, "nodePort": 30080}],
        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}},
    )  # fmt: skip
    (verdict,) = made.elements["cluster-ips"].values()
    # Shared by all of its addresses, so that a client stays whichever it uses.
    assert made.elements["node-ports"] == {"tcp . 30080": verdict}
    sticky = verdict.removeprefix("goto ")
    assert len(made.collections) == 2
    assert all("timeout 60s" in one.type for one in made.collections.values())
    assert len(made.chains[sticky]) == 3
    assert made.chains[sticky][2].startswith("numgen random mod 2 vmap { 0 : goto to-")
    ends = [rules for name, rules in made.chains.items() if name != sticky]
    assert sorted(rule[1] for rule in ends) == [
        f"meta l4proto tcp dnat to {A}:8080", f"meta l4proto tcp dnat to {B}:8080",
    ]  # fmt: skip
    assert all(rule[0].startswith("update @of-") for rule in ends)


def test_source_ranges_of_a_load_balancer() -> None:
    made = fragment(
        A, type="LoadBalancer", loadBalancerSourceRanges=["192.0.2.0/24", "2001:db8::/32"],
        status={"loadBalancer": {"ingress": [{"ip": "198.51.100.2"}]}},
    )  # fmt: skip
    (verdict,) = made.elements["source-ranges"].values()
    assert made.chains[verdict.removeprefix("goto ")] == (
        "ip saddr { 192.0.2.0/24 } return", "counter drop",
    )  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.0.1; x", ""],
)
def test_an_endpoint_that_no_one_may_name_gets_no_connection(address: str) -> None:
    assert fragment(address).elements["no-endpoints"]
    assert fragment(A, address).elements["endpoints-tcp"] == {"10.96.0.7 . 80 . 0": f"{A} . 8080"}


def test_source_ranges_are_read_and_merged() -> None:
    ranges = [" 10.0.0.0/255.0.0.0 ", "10.1.0.0/16", "192.0.2.7", "fd00::/8", "10.0.0.0/8 } accept"]
    made = fragment(
        A, type="LoadBalancer", loadBalancerSourceRanges=ranges,
        status={"loadBalancer": {"ingress": [{"ip": "198.51.100.2"}]}},
    )  # fmt: skip
    (name,) = made.elements["source-ranges"].values()
    assert made.chains[name.removeprefix("goto ")] == (
        "ip saddr { 10.0.0.0/8, 192.0.2.7/32 } return", "counter drop",
    )  # fmt: skip
