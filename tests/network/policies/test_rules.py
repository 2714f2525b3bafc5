"""Rules of pods: what policies allow, as the lines of their chains."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_group import RuntimeClass
from moorage.network.frame import IPV4
from moorage.network.objects import PolicyPeer
from moorage.network.policies.class_networks import ANNOTATION, ClassNetwork, network_of
from moorage.network.policies.peers import NamedPorts, peers_of
from moorage.network.policies.rules import pod_rules, selecting
from tests.network.objects import a_pod, a_policy

POD = a_pod("10.244.0.3", "default", ("TCP", "http", 8080), ("UDP", "http", 53), app="web")


def lines(direction: str, *rules: dict[str, Any]) -> list[str]:
    """Return the rules of the pod's chain in a direction, without the refusal at its end."""
    spec: dict[str, Any] = {direction: list(rules)}
    policies = [a_policy(**spec)]
    made = pod_rules(POD, policies, IPV4).fragment
    verdict = made.elements[direction]["10.244.0.3"]
    chain = made.chains[verdict.removeprefix("goto ")]
    assert chain[-1] == "counter reject with icmp admin-prohibited"
    return [line.removesuffix(" return") for line in chain[:-1]]


def peers(namespace: str = "default", port: NamedPorts | None = None, **peer: Any) -> str:
    return peers_of(PolicyPeer(**peer), namespace, port).name


A = {"matchLabels": {"app": "a"}}
ANY_HTTP = peers(port=("TCP", ("http",)), pod_selector={}, namespace_selector={})


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, ["return"]),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, ["ip saddr { 10.0.0.0/8 }"]),
        ({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, ["return"]),
        ({"from": [{"ipBlock": {"cidr": "::/0"}}]}, []),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.0.0.0/16"]}}]},
         ["ip saddr 10.0.0.0/8 ip saddr != { 10.0.0.0/15 }"]),
        ({"from": [{"podSelector": A}]}, [f"ip saddr @{peers(pod_selector=A)}"]),
        ({"from": [{"namespaceSelector": {}}]}, [f"ip saddr @{peers(namespace_selector={})}"]),
        ({"ports": [{"port": 80}, {"port": 81}, {"port": 90, "endPort": 95}]},
         ["tcp dport { 80-81, 90-95 }"]),
        ({"ports": [{"protocol": "UDP"}, {"protocol": "UDP", "port": 5},
                    {"protocol": "SCTP", "port": 7}]},
         ["meta l4proto udp", "sctp dport { 7 }"]),
        # A named port is the pod's own, and nothing where the pod has none.
        ({"ports": [{"port": "http"}]}, ["tcp dport { 8080 }"]),
        ({"ports": [{"port": "http", "protocol": "UDP"}]}, ["udp dport { 53 }"]),
        ({"ports": [{"port": "other"}]}, []),
        ({"ports": [{"port": 80}],
          "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": A}]},
         [f"ip saddr @{peers(pod_selector=A)} tcp dport {{ 80 }}",
          "ip saddr { 10.0.0.0/8 } tcp dport { 80 }"]),
        # Blocks are merged, and so are ports: a policy may have ten thousand of each.
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"ipBlock": {"cidr": "10.1.0.0/16"}},
                   {"ipBlock": {"cidr": "192.0.2.0/24"}}],
          "ports": [{"port": 80, "endPort": 90}, {"port": 85, "endPort": 95}, {"port": 96}]},
         ["ip saddr { 10.0.0.0/8, 192.0.2.0/24 } tcp dport { 80-96 }"]),
        # What is excepted whole is not allowed, nor is what cannot be read.
        ({"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["0.0.0.0/1", "128.0.0.0/1"]}}]},
         []),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8; accept"]}}]}, []),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fe80::1%} accept/128"]}}]}, []),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/8"]}}]},
         ["ip saddr 10.0.0.0/8"]),
        ({"ports": [{"port": 80, "protocol": "TCP } accept"}]}, []),
    ],
)  # fmt: skip
def test_what_an_ingress_rule_allows(rule: dict[str, Any], expected: list[str]) -> None:
    assert lines("ingress", rule) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 80}]},
         ["ip daddr { 10.0.0.0/8 } tcp dport { 80 }"]),
        # A named port differs from one pod at the other end to the next.
        ({"to": [{"podSelector": A}], "ports": [{"port": "http"}]},
         [f"ip daddr . tcp dport @{peers(port=('TCP', ('http',)), pod_selector=A)}"]),
        ({"ports": [{"port": "http"}]},
         [f"ip daddr . tcp dport @{ANY_HTTP}"]),
        ({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": "http"}]}, []),
    ],
)  # fmt: skip
def test_what_an_egress_rule_allows(rule: dict[str, Any], expected: list[str]) -> None:
    assert lines("egress", rule) == expected


def test_a_pod_without_policies_may_do_everything() -> None:
    made = pod_rules(POD, [], IPV4).fragment
    assert made.elements == {
        "ingress": {"10.244.0.3": "return"}, "egress": {"10.244.0.3": "return"},
    }  # fmt: skip
    assert not made.chains


def test_a_policy_isolates_in_its_directions_alone() -> None:
    made = pod_rules(POD, [a_policy(ingress=[])], IPV4).fragment
    assert made.elements["egress"] == {"10.244.0.3": "return"}
    assert made.elements["ingress"]["10.244.0.3"].startswith("goto ingress-")


def test_policies_add_up_and_pods_under_the_same_ones_share_a_chain() -> None:
    one, two = (
        a_policy("a", ingress=[{"ports": [{"port": 1}]}]),
        a_policy("b", ingress=[{"ports": [{"port": 2}]}]),
    )
    made = pod_rules(POD, [two, one], IPV4).fragment
    (chain,) = made.chains.values()
    assert chain[:2] == ("tcp dport { 1 } return", "tcp dport { 2 } return")
    other = pod_rules(a_pod("10.244.0.9"), [one, two], IPV4).fragment
    assert other.chains == made.chains


def test_policies_select_by_namespace_and_labels() -> None:
    mine, others = a_policy(podSelector=A), a_policy(namespace="other")
    assert selecting([mine, others], a_pod("1", app="a")) == [mine]
    assert selecting([mine, others], a_pod("1", app="b")) == []
    assert selecting([mine, others], a_pod("1", "other")) == [others]


def of_class(network: ClassNetwork, **spec: Any) -> dict[str, tuple[str, ...]]:
    """Return the chains of the pod by direction, in a class with a network."""
    policies = [a_policy(**spec)] if spec else []
    made = pod_rules(POD, policies, IPV4, network, "10.244.0.2").fragment
    return {
        direction: made.chains.get(values["10.244.0.3"].removeprefix("goto "), ())
        for direction, values in made.elements.items()
    }


REFUSED = "counter reject with icmp admin-prohibited"


def test_a_class_without_network_has_none_whatever_policies_say() -> None:
    allowing: Any = {"ingress": [{}], "egress": [{}]}
    specs: tuple[Any, ...] = ({}, allowing)
    for spec in specs:
        chains = of_class(ClassNetwork.NONE, **spec)
        assert chains == {"ingress": (REFUSED,), "egress": (REFUSED,)}


def test_a_restricted_class_reaches_the_dns_and_what_policies_name() -> None:
    guard = (
        "ip daddr 10.244.0.2 udp dport 53 return",
        "ip daddr 10.244.0.2 tcp dport 53 return",
        f"fib daddr type local {REFUSED}",
        f"ip daddr 169.254.0.0/16 {REFUSED}",
    )
    assert of_class(ClassNetwork.RESTRICTED) == {"ingress": (), "egress": (*guard, REFUSED)}
    egress: Any = {"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}
    chains = of_class(ClassNetwork.RESTRICTED, **egress)
    assert chains["egress"] == (*guard, "return", REFUSED)


@pytest.mark.parametrize(
    ("annotations", "network"),
    [
        ({}, "default"), ({ANNOTATION: "default"}, "default"), ({ANNOTATION: "none"}, "none"),
        ({ANNOTATION: "restricted"}, "restricted"), ({ANNOTATION: "Restricted"}, "none"),
    ],
)  # fmt: skip
def test_the_network_of_a_class_is_an_annotation(annotations: Any, network: str) -> None:
    runtime_class = RuntimeClass(metadata=ObjectMeta(name="c", annotations=annotations))
    assert network_of(runtime_class) == network
