"""Rules of a pod: the connections that the policies that select it allow. Pure.

A pod that no policy selects in a direction may do everything. One that is selected has a chain with
a rule for each allowed connection and a refusal at its end; pods under the same policies share it.

Source: networking.k8s.io/v1 NetworkPolicy. Upstream leaves open whether a refused packet is dropped
or answered. It is answered, so that a program sees an error at once instead of waiting.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.api.labels import from_object
from moorage.network import frame
from moorage.network.addresses import Network, parse_network
from moorage.network.frame import Family
from moorage.network.objects import (
    EgressRule,
    IngressRule,
    NetworkPolicy,
    PolicyPeer,
    PolicyPort,
)
from moorage.network.policies.class_networks import ClassNetwork, egress_guard, refusal
from moorage.network.policies.peers import NamedPorts, NetworkPod, Peers, peers_of
from moorage.network.tables import Fragment

INGRESS: Final = "Ingress"
EGRESS: Final = "Egress"
_HASH_DIGITS: Final = 32
"""So many that no one can write a policy whose chain has the name of another's."""
_ALLOW: Final = "return"


@dataclass(slots=True)
class PodRules:
    """The fragment of a pod, and the sets of peers that its chains use."""

    fragment: Fragment
    peers: set[Peers] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What policies say of pods that have the same named ports: a verdict for each direction."""

    by_direction: Mapping[str, str]
    chains: Mapping[str, tuple[str, ...]]
    peers: frozenset[Peers]


def selecting(policies: Iterable[NetworkPolicy], pod: NetworkPod) -> list[NetworkPolicy]:
    """Return the policies of a pod's namespace that select it."""
    return [
        policy
        for policy in policies
        if policy.metadata.namespace == pod.namespace
        and from_object(policy.spec.pod_selector).matches(pod.labels)
    ]


def pod_rules(
    pod: NetworkPod,
    policies: Sequence[NetworkPolicy],
    family: Family,
    network: ClassNetwork = ClassNetwork.DEFAULT,
    dns: str = "",
) -> PodRules:
    """Return the rules of a pod in one family, given the policies that select it.

    `network` is that of its class, `dns` the address of the cluster DNS.
    """
    return rules_under(pod, verdicts_of(pod.ports, policies, family, network, dns), family)


def rules_under(pod: NetworkPod, verdicts: Verdicts, family: Family) -> PodRules:
    """Return the rules of a pod in one family under verdicts that pods share."""
    addresses = pod.addresses_of(family)
    if not addresses:
        return PodRules(Fragment())
    elements = {
        direction: dict.fromkeys(addresses, verdict)
        for direction, verdict in verdicts.by_direction.items()
    }
    return PodRules(Fragment(verdicts.chains, {}, elements), set(verdicts.peers))


def verdicts_of(
    ports: Sequence[tuple[str, str, int]],
    policies: Sequence[NetworkPolicy],
    family: Family,
    network: ClassNetwork = ClassNetwork.DEFAULT,
    dns: str = "",
) -> Verdicts:
    """Return what policies say of the pods that they select and that have these named ports.

    `network` is that of the pods' class, `dns` the address of the cluster DNS.
    """
    chains: dict[str, tuple[str, ...]] = {}
    by_direction: dict[str, str] = {}
    peers: set[Peers] = set()
    for direction, verdicts in ((INGRESS, frame.INGRESS), (EGRESS, frame.EGRESS)):
        applying = [policy for policy in policies if direction in policy.spec.policy_types]
        guard = []
        if network is ClassNetwork.RESTRICTED and direction == EGRESS:
            guard = [*egress_guard(family, dns)]
        by_direction[verdicts] = _ALLOW
        if applying or guard or network is ClassNetwork.NONE:
            allowed = [] if network is ClassNetwork.NONE else applying
            lines = (*guard, *_lines(ports, allowed, direction, family, peers))
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_HASH_DIGITS]
            name = f"{verdicts}-{digest}"
            chains[name] = (*lines, refusal(family))
            by_direction[verdicts] = f"goto {name}"
    return Verdicts(by_direction, chains, frozenset(peers))


def _lines(
    own_ports: Sequence[tuple[str, str, int]],
    policies: Iterable[NetworkPolicy],
    direction: str,
    family: Family,
    used: set[Peers],
) -> Iterator[str]:
    """Yield a rule for each allowed connection, in a stable order; add to the peers used."""
    ordered = sorted(policies, key=lambda policy: policy.metadata.name)
    lines: dict[str, None] = {}
    for policy in ordered:
        namespace = policy.metadata.namespace
        allowed = policy.spec.ingress if direction == INGRESS else policy.spec.egress
        for rule in allowed:
            for match in _matches(own_ports, rule, namespace, family, used):
                lines[f"{match} {_ALLOW}".lstrip()] = None
    return iter(lines)


def _matches(
    own_ports: Sequence[tuple[str, str, int]],
    rule: IngressRule | EgressRule,
    namespace: str,
    family: Family,
    used: set[Peers],
) -> Iterator[str]:
    is_egress = isinstance(rule, EgressRule)
    end = f"{family.name} {'daddr' if is_egress else 'saddr'}"
    plain, named = _split(rule.ports, own_ports, is_egress=is_egress)
    # Ports and blocks are merged to few rules: a policy may have ten thousand of each.
    if plain or not rule.ports:
        for where in _places(rule.peers, end, namespace, family, used):
            for ports in plain or [""]:
                yield f"{where} {ports}".strip()
    for protocol, names in named:
        yield from _named(rule.peers, end, namespace, (protocol, names), used)


def _named(
    peers: Iterable[PolicyPeer], end: str, namespace: str, port: NamedPorts, used: set[Peers]
) -> Iterator[str]:
    """Yield the matches of named ports of the pods at the other end, which differ by pod."""
    everyone = PolicyPeer(pod_selector={}, namespace_selector={})
    for peer in peers or (everyone,):
        # An address has no named ports.
        if peer.ip_block is None:
            pods = peers_of(peer, namespace, port)
            used.add(pods)
            yield f"{end} . {port[0].lower()} dport @{pods.name}"


def _places(
    peers: Sequence[PolicyPeer], end: str, namespace: str, family: Family, used: set[Peers]
) -> Iterator[str]:
    """Yield the matches of peers' addresses, the empty one for all addresses."""
    if not peers:
        yield ""
    whole: list[Network] = []
    for peer in peers:
        if peer.ip_block is None:
            pods = peers_of(peer, namespace)
            used.add(pods)
            yield f"{end} @{pods.name}"
            continue
        network = parse_network(peer.ip_block.cidr)
        if network is None or network.version != family.version:
            continue
        if peer.ip_block.except_:
            yield from _block(network, peer.ip_block.except_, end)
        else:
            whole.append(network)
    merged = list(ipaddress.collapse_addresses(whole))  # type: ignore[type-var]
    if merged:
        texts = ", ".join(map(str, merged))
        yield f"{end} {{ {texts} }}" if merged[0].prefixlen else ""


def _block(network: Network, exceptions: Iterable[str], end: str) -> Iterator[str]:
    """Yield the match of a block but its exceptions."""
    parsed = [parse_network(one) for one in exceptions]
    if None in parsed:
        # What cannot be read must not be allowed.
        return
    excepted = [one for one in parsed if one and one.version == network.version]
    match = f"{end} {network}" if network.prefixlen else ""
    if excepted:
        merged = list(ipaddress.collapse_addresses(excepted))  # type: ignore[type-var]
        if network in merged:
            return
        match = f"{match} {end} != {{ {', '.join(map(str, merged))} }}"
    yield match.strip()


def _split(
    ports: Iterable[PolicyPort], own_ports: Sequence[tuple[str, str, int]], *, is_egress: bool
) -> tuple[list[str], list[NamedPorts]]:
    """Return matches of ports that have a number, and the named ports of other pods.

    A named port of an ingress rule is this pod's own.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    whole: set[str] = set()
    named: dict[str, set[str]] = {}
    for port in ports:
        protocol = port.protocol or "TCP"
        if protocol.lower() not in frame.PROTOCOLS:
            continue
        if port.port is None:
            whole.add(protocol)
        elif isinstance(port.port, int):
            ranges.setdefault(protocol, []).append((port.port, port.end_port or port.port))
        elif is_egress:
            named.setdefault(protocol, set()).add(port.port)
        else:
            own = [
                number for kind, name, number in own_ports if (kind, name) == (protocol, port.port)
            ]
            ranges.setdefault(protocol, []).extend((number, number) for number in own)
    matches = [f"meta l4proto {protocol.lower()}" for protocol in sorted(whole)]
    for protocol in sorted(ranges.keys() - whole):
        if ranges[protocol]:
            texts = ", ".join(_merged(ranges[protocol]))
            matches.append(f"{protocol.lower()} dport {{ {texts} }}")
    return matches, [(protocol, tuple(sorted(named[protocol]))) for protocol in sorted(named)]


def _merged(ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yield ranges of ports that do not overlap, as one set must have them."""
    first = last = -1
    for start, end in sorted(ranges):
        if start > last + 1:
            if last >= 0:
                yield f"{first}-{last}" if first < last else str(first)
            first, last = start, end
        last = max(last, end)
    yield f"{first}-{last}" if first < last else str(first)
