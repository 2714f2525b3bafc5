"""Rules of a pod: the connections that the policies that select it allow. Pure.

A pod that no policy selects in a direction may do everything. One that is selected has a chain with
a rule for each allowed connection and a refusal at its end; pods under the same policies share it.

Source: networking.k8s.io/v1 NetworkPolicy. Upstream leaves open whether a refused packet is dropped
or answered. It is answered, so that a program sees an error at once instead of waiting.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.api.labels import from_object
from moorage.network import frame
from moorage.network.frame import Family
from moorage.network.objects import (
    EgressRule,
    IngressRule,
    IPBlock,
    NetworkPolicy,
    PolicyPeer,
    PolicyPort,
)
from moorage.network.policies.peers import NetworkPod, Peers, peers_of
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


def selecting(policies: Iterable[NetworkPolicy], pod: NetworkPod) -> list[NetworkPolicy]:
    """Return the policies of a pod's namespace that select it."""
    return [
        policy
        for policy in policies
        if policy.metadata.namespace == pod.namespace
        and from_object(policy.spec.pod_selector).matches(pod.labels)
    ]


def pod_rules(pod: NetworkPod, policies: Sequence[NetworkPolicy], family: Family) -> PodRules:
    """Return the rules of a pod in one family, given the policies that select it."""
    addresses = pod.addresses_of(family)
    if not addresses:
        return PodRules(Fragment())
    rules = PodRules(Fragment())
    chains: dict[str, tuple[str, ...]] = {}
    elements: dict[str, dict[str, str]] = {}
    for direction, verdicts in ((INGRESS, frame.INGRESS), (EGRESS, frame.EGRESS)):
        applying = [policy for policy in policies if direction in policy.spec.policy_types]
        verdict = _ALLOW
        if applying:
            lines = tuple(_lines(pod, applying, direction, family, rules.peers))
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_HASH_DIGITS]
            name = f"{verdicts}-{digest}"
            chains[name] = (*lines, f"counter reject with {family.prohibited}")
            verdict = f"goto {name}"
        elements[verdicts] = dict.fromkeys(addresses, verdict)
    rules.fragment = Fragment(chains, {}, elements)
    return rules


def _lines(
    pod: NetworkPod,
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
            for match in _matches(pod, rule, namespace, family, used):
                lines[f"{match} {_ALLOW}".lstrip()] = None
    return iter(lines)


def _matches(
    pod: NetworkPod,
    rule: IngressRule | EgressRule,
    namespace: str,
    family: Family,
    used: set[Peers],
) -> Iterator[str]:
    is_egress = isinstance(rule, EgressRule)
    end = f"{family.name} {'daddr' if is_egress else 'saddr'}"
    plain, named = _split(rule.ports, pod, is_egress=is_egress)
    peers: Sequence[PolicyPeer | None] = rule.peers or (None,)
    for peer in peers:
        where = _where(peer, end, namespace, family, used)
        if where is not None and (plain or not rule.ports):
            for ports in plain or [""]:
                yield f"{where} {ports}".strip()
        for protocol, name in named:
            yield from _named(peer, end, namespace, (protocol, name), used)


def _named(
    peer: PolicyPeer | None, end: str, namespace: str, port: tuple[str, str], used: set[Peers]
) -> Iterator[str]:
    """Yield the match of a named port of the pods at the other end, which differs by pod."""
    if peer is not None and peer.ip_block is not None:
        # An address has no named ports.
        return
    everyone = PolicyPeer(pod_selector={}, namespace_selector={})
    peers = peers_of(peer or everyone, namespace, port)
    used.add(peers)
    yield f"{end} . {port[0].lower()} dport @{peers.name}"


def _where(
    peer: PolicyPeer | None, end: str, namespace: str, family: Family, used: set[Peers]
) -> str | None:
    """Return the match of a peer's addresses: empty for all, None for none in this family."""
    if peer is None:
        return ""
    if peer.ip_block is not None:
        return _block(peer.ip_block, end, family)
    peers = peers_of(peer, namespace)
    used.add(peers)
    return f"{end} @{peers.name}"


def _block(block: IPBlock, end: str, family: Family) -> str | None:
    network = _network(block.cidr)
    if network is None or (network.version == 6) != (family.name == "ip6"):
        return None
    match = "" if network.prefixlen == 0 else f"{end} {network}"
    exceptions = [one for one in map(_network, block.except_) if one is not None]
    if exceptions:
        collapsed = ipaddress.collapse_addresses(exceptions)  # type: ignore[type-var]
        match = f"{match} {end} != {{ {', '.join(map(str, collapsed))} }}"
    return match.strip()


def _split(
    ports: Iterable[PolicyPort], pod: NetworkPod, *, is_egress: bool
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return matches of ports that have a number, and the named ports of other pods.

    A named port of an ingress rule is this pod's own.
    """
    numbers: dict[str, list[str]] = {}
    whole: set[str] = set()
    named: list[tuple[str, str]] = []
    for port in ports:
        protocol = port.protocol or "TCP"
        if port.port is None:
            whole.add(protocol)
        elif isinstance(port.port, int):
            last = port.end_port or port.port
            text = str(port.port) if last == port.port else f"{port.port}-{last}"
            numbers.setdefault(protocol, []).append(text)
        elif is_egress:
            named.append((protocol, port.port))
        else:
            own = [
                number for kind, name, number in pod.ports if (kind, name) == (protocol, port.port)
            ]
            numbers.setdefault(protocol, []).extend(map(str, own))
    matches = [f"meta l4proto {protocol.lower()}" for protocol in sorted(whole)]
    for protocol in sorted(numbers.keys() - whole):
        distinct = list(dict.fromkeys(numbers[protocol]))
        # Ranges of one set must not overlap: each is a rule of its own.
        single = [text for text in distinct if "-" not in text]
        if single:
            matches.append(f"{protocol.lower()} dport {{ {', '.join(single)} }}")
        matches += [f"{protocol.lower()} dport {text}" for text in distinct if "-" in text]
    return matches, named


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
