"""Packet filter rules of a cluster's network: added once, removed with the cluster.

    nat     PREROUTING, OUTPUT ─▶ CHAIN-PORTS   the cluster's own ports are no host ports
            POSTROUTING        ─▶ CHAIN         pods have the host's address outside
    filter  FORWARD            ─▶ CHAIN         service addresses are refused; pods pass
            INPUT              ─▶ CHAIN-IN      pods reach the DNS and the API
            OUTPUT             ─▶ CHAIN-OUT     service addresses are refused

Pure: the input is the output of `iptables-save`, the result a script for `iptables-restore`, which
the kernel applies whole or not at all. Rules of other clusters and programs are never changed: ours
are in chains with the cluster's ID, those of portmap have the network's name in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from moorage.cluster.network.subnet import PodNetwork

# The mark that portmap itself would use; Kubernetes' proxies use the bits 14 and 15.
_MARK = "0x2000/0x2000"
_MULTICAST = "224.0.0.0/4"
_DNS_PORT = 53
_HOST_PORTS = "CNI-HOSTPORT-DNAT"
_PORTS = "-PORTS"
_PROXY_CHAIN = "KUBE-SERVICES"
_RULE = re.compile(r"^-A (\S+) (.*)$")
_TARGET = re.compile(r"-j (\S+)")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')


@dataclass(frozen=True, slots=True)
class _Rule:
    """A saved rule: its chain and the text after it."""

    chain: str
    text: str

    @property
    def target(self) -> str:
        # A rule's comment may contain text that looks like a target.
        match = _TARGET.search(_QUOTED.sub("", self.text))
        return match.group(1) if match else ""

    @property
    def removal(self) -> str:
        return f"-D {self.chain} {self.text}"


@dataclass(frozen=True, slots=True)
class _Table:
    """A saved table; `policies` has every chain, with `-` for a chain without policy."""

    name: str
    policies: Mapping[str, str]
    rules: tuple[_Rule, ...]

    @property
    def chains(self) -> frozenset[str]:
        return frozenset(self.policies)


def chain_name(network: PodNetwork) -> str:
    """Return the chain that masquerades (table nat) and filters (table filter) pods' packets."""
    return f"MOORAGE-{network.cluster_id}"


def mark_chain_name(network: PodNetwork) -> str:
    """Return the chain that marks packets for masquerading."""
    return f"{chain_name(network)}-MARK"


def ports_chain_name(network: PodNetwork) -> str:
    """Return the chain that keeps host ports off the cluster's own ports."""
    return f"{chain_name(network)}{_PORTS}"


def output_chain_name(network: PodNetwork) -> str:
    """Return the chain that refuses service addresses to the host itself."""
    return f"{chain_name(network)}-OUT"


def input_chain_name(network: PodNetwork) -> str:
    """Return the chain that lets pods reach the DNS and the API on a host that filters."""
    return f"{chain_name(network)}-IN"


_CHAIN_NAMES = (
    chain_name,
    mark_chain_name,
    ports_chain_name,
    output_chain_name,
    input_chain_name,
)


def setup_script(network: PodNetwork, saved: str, *, refuses_for_host: bool = True) -> str:
    """Return the script that adds the network's rules, whether or not some of them exist.

    Pods reach other hosts under this host's address. If the host filters what it forwards, pods'
    packets are accepted, and so are answers to them and connections through host ports. Connections
    to service addresses are refused, those of the host itself only with `refuses_for_host`: nothing
    answers there yet, and a packet that left would reach another host with that address.
    """
    chain, mark, pods = chain_name(network), mark_chain_name(network), network.subnet
    tables = {table.name: table for table in _tables(saved)}
    filtering = tables.get("filter")
    nat = [
        *_port_guard(network, tables.get("nat"), [*_dns_guard(network)]),
        f":{chain} - [0:0]",
        f":{mark} - [0:0]",
        f"-A {mark} -j MARK --set-xmark {_MARK}",
        f"-A {chain} -m mark --mark {_MARK} -j MASQUERADE",
        f"-A {chain} -s {pods} -d {pods} -j RETURN",
        f"-A {chain} -s {pods} ! -d {_MULTICAST} -j MASQUERADE",
        *_jump(tables.get("nat"), "POSTROUTING", chain),
    ]
    is_filtered = filtering is not None and _filters(filtering, "FORWARD", chain)
    forwarding = _refusals(network, chain, f"-s {pods} ")
    if is_filtered:
        related = "-m conntrack --ctstate RELATED,ESTABLISHED,DNAT"
        forwarding += [
            f"-A {chain} -s {pods} -j ACCEPT",
            f"-A {chain} -d {pods} {related} -j ACCEPT",
        ]
    if forwarding:
        forwarding = [f":{chain} - [0:0]", *forwarding, *_jump(filtering, "FORWARD", chain)]
    sending = _sending(network, filtering, refuses=refuses_for_host)
    # Writing to a table creates it permanently, so the script has no table without commands.
    receiving = _receiving(network, filtering)
    return _script({"nat": nat, "filter": [*forwarding, *receiving, *sending]})


def _receiving(network: PodNetwork, filtering: _Table | None) -> list[str]:
    """Return the rules for pods' packets to the cluster DNS and the API, if the host filters."""
    own = input_chain_name(network)
    if filtering is None or not _filters(filtering, "INPUT", own):
        return []
    pods = f"-A {own} -s {network.subnet}"
    dns = [
        f"{pods} -d {network.dns_address}/32 -p {kind} -m {kind} --dport 53 -j ACCEPT"
        for kind in ("udp", "tcp")
    ]
    api = [
        f"{pods} -d {one.address}/32 -p tcp -m tcp --dport {one.port} -j ACCEPT"
        for one in network.listeners
        if one.address == str(network.gateway)
    ]
    return [f":{own} - [0:0]", *dns, *api, *_jump(filtering, "INPUT", own)]


def guard_script(
    network: PodNetwork,
    saved: str,
    *,
    interfaces: Sequence[str] = (),
    refuses_services: bool = False,
) -> str:
    """Return the script that keeps host ports off the cluster's own ports.

    For a cluster without a pod network of its own on this host. With `refuses_services`, service
    addresses are refused to the host and to packets from the `interfaces`, which are those of an
    external engine's pods.
    """
    tables = {table.name: table for table in _tables(saved)}
    filtering, chain = tables.get("filter"), chain_name(network)
    sources = interfaces if refuses_services else ()
    forwarding = [line for name in sources for line in _refusals(network, chain, f"-i {name} ")]
    if forwarding or _has_chain(filtering, chain):
        forwarding = [f":{chain} - [0:0]", *forwarding, *_jump(filtering, "FORWARD", chain)]
    sending = _sending(network, filtering, refuses=refuses_services)
    nat = _port_guard(network, tables.get("nat"))
    return _script({"nat": nat, "filter": [*forwarding, *sending]})


def missing_rules(script: str, saved: str) -> frozenset[str]:
    """Return the lines of a setup script that the saved rules do not have."""
    present = set(saved.splitlines())
    return frozenset(
        line
        for line in script.splitlines()
        if line.startswith("-I ") or (line.startswith("-A ") and line not in present)
    )


def has_service_proxy(saved: str) -> bool:
    """Return whether a Kubernetes service proxy has rules here; its addresses may be the same."""
    return any(_PROXY_CHAIN in table.chains for table in _tables(saved))


def _sending(network: PodNetwork, filtering: _Table | None, *, refuses: bool) -> list[str]:
    """Return the rules for packets of the host itself to service addresses."""
    own = output_chain_name(network)
    sending = _refusals(network, own, "") if refuses else []
    if sending or _has_chain(filtering, own):
        return [f":{own} - [0:0]", *sending, *_jump(filtering, "OUTPUT", own)]
    return []


def _has_chain(table: _Table | None, chain: str) -> bool:
    return table is not None and chain in table.chains


def _port_guard(network: PodNetwork, table: _Table | None, more: Sequence[str] = ()) -> list[str]:
    """Return rules that accept packets to the cluster's own ports before any host port's rule."""
    chain = ports_chain_name(network)
    accepted = [
        f"-A {chain} -d {listener.address}/32 -p tcp -m tcp --dport {listener.port} -j ACCEPT"
        for listener in network.listeners
    ]
    accepted += more
    if not accepted:
        return []
    jumps = [
        line for parent in ("PREROUTING", "OUTPUT") for line in _first_jump(table, parent, chain)
    ]
    return [f":{chain} - [0:0]", *accepted, *jumps]


def _dns_guard(network: PodNetwork) -> Iterator[str]:
    """Yield the rules for the cluster DNS: a pod's host port 53 is one of the node's addresses."""
    place = f"-A {ports_chain_name(network)} -d {network.dns_address}/32"
    for protocol in ("tcp", "udp"):
        yield f"{place} -p {protocol} -m {protocol} --dport {_DNS_PORT} -j ACCEPT"


def _first_jump(table: _Table | None, parent: str, chain: str) -> list[str]:
    """Return the commands for a jump before all rules except other clusters' port guards.

    Returns none if it is there already; moves it if it is elsewhere.
    """
    rules = [rule for rule in (table.rules if table else ()) if rule.chain == parent]
    present = [rule for rule in rules if rule.target == chain]
    guards = list(takewhile(lambda rule: rule.target.endswith(_PORTS), rules))
    if len(present) == 1 and present[0] in guards:
        return []
    return [*(rule.removal for rule in present), f"-I {parent} 1 -j {chain}"]


def _refusals(network: PodNetwork, chain: str, source: str) -> list[str]:
    """Return rules that refuse the service network at once, as a host does for a closed port."""
    if network.services is None:
        return []
    rule = f"-A {chain} {source}-d {network.services}"
    return [
        f"{rule} -p tcp -j REJECT --reject-with tcp-reset",
        f"{rule} -j REJECT --reject-with icmp-port-unreachable",
    ]


def removal_script(network: PodNetwork, saved: str) -> str:
    """Return the script that removes every rule and chain of the network, empty without any."""
    return _script({table.name: _removal(network, table) for table in _tables(saved)})


def _filters(table: _Table, parent: str, own: str) -> bool:
    return table.policies.get(parent) != "ACCEPT" or any(
        rule.chain == parent and rule.target != own for rule in table.rules
    )


def _jump(table: _Table | None, parent: str, chain: str) -> list[str]:
    rules = table.rules if table else ()
    if any(rule.chain == parent and rule.target == chain for rule in rules):
        return []
    # First, since later rules may drop what this one accepts.
    return [f"-I {parent} 1 -j {chain}"]


def _removal(network: PodNetwork, table: _Table) -> list[str]:
    ours = {name(network) for name in _CHAIN_NAMES} & table.chains
    ports = [rule for rule in table.rules if _is_host_port_of(network, rule)]
    chains = ours | {rule.target for rule in ports if rule.target in table.chains}
    jumps = [rule for rule in table.rules if rule.target in chains and rule.chain not in chains]
    is_shared_left = any(rule.chain == _HOST_PORTS and rule not in jumps for rule in table.rules)
    if _HOST_PORTS in table.chains and not is_shared_left:
        # No pod has a host port any more; portmap creates the chain again for the next one.
        jumps += [rule for rule in table.rules if rule.target == _HOST_PORTS]
        chains = chains | {_HOST_PORTS}
    removed = sorted(chains)
    return [
        *(rule.removal for rule in jumps),
        *(f"-F {chain}" for chain in removed),
        *(f"-X {chain}" for chain in removed),
    ]


def _is_host_port_of(network: PodNetwork, rule: _Rule) -> bool:
    return rule.chain == _HOST_PORTS and f'name: \\"{network.name}\\"' in rule.text


def _tables(saved: str) -> Iterator[_Table]:
    name, policies, rules = "", dict[str, str](), list[_Rule]()
    for line in saved.splitlines():
        if line.startswith("*"):
            name, policies, rules = line[1:], {}, []
        elif line.startswith(":"):
            chain, _, policy = line[1:].partition(" ")
            policies[chain] = policy.partition(" ")[0]
        elif match := _RULE.match(line):
            rules.append(_Rule(match.group(1), match.group(2)))
        elif line == "COMMIT":
            yield _Table(name, policies, tuple(rules))


def _script(tables: Mapping[str, Iterable[str]]) -> str:
    parts = []
    for name, commands in tables.items():
        lines = list(commands)
        if lines:
            parts += [f"*{name}", *lines, "COMMIT"]
    return "".join(f"{line}\n" for line in parts)
