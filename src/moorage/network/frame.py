"""Frame of a cluster's table: its base chains, and the collections that all fragments fill.

    prerouting, output (nat)     a Service's address or port becomes that of an endpoint
    postrouting (nat)            answers come back this way: hairpins, endpoints that are no pods
    forward, input, output       addresses of Services that lead nowhere are refused; policies
    prerouting (filter)          source ranges of load balancers; addresses that are not the pod's

Rules of the filter chains see addresses after translation. A packet that is in an established
connection is looked at once. Priorities are those of kube-proxy's nftables mode, but translation
comes just before that of other programs: a host port of a pod has no part of a Service.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CLUSTER_IPS: Final = "cluster-ips"
EXTERNAL_IPS: Final = "external-ips"
NODE_PORTS: Final = "node-ports"
NO_ENDPOINTS: Final = "no-endpoints"
NO_ENDPOINT_PORTS: Final = "no-endpoint-ports"
SOURCE_RANGES: Final = "source-ranges"
HAIRPINS: Final = "hairpins"
POD_LINKS: Final = "pod-links"
INGRESS: Final = "ingress"
EGRESS: Final = "egress"

INDEX: Final = "numgen random mod 65536"
"""An index in a key, in the words that give its type."""
PROTOCOLS: Final = ("tcp", "udp", "sctp")

MASQUERADE_MARK: Final = 0x4000
"""The bit that kube-proxy uses. It is set before an endpoint is chosen."""


@dataclass(frozen=True, slots=True)
class Family:
    """Words of nft(8) for an address family; `ip` or `ip6`.

    `closed`, `absent` and `prohibited` are the answers for a port without a Service, for an address
    without a pod, and for what a policy does not allow.
    """

    name: str
    type: str
    closed: str
    absent: str
    prohibited: str
    loopback: str

    @property
    def version(self) -> int:
        return 6 if self.name == "ip6" else 4


IPV4: Final = Family(
    "ip",
    "ipv4_addr",
    "icmp port-unreachable",
    "icmp host-unreachable",
    "icmp admin-prohibited",
    "127.0.0.0/8",
)
IPV6: Final = Family(
    "ip6",
    "ipv6_addr",
    "icmpv6 port-unreachable",
    "icmpv6 addr-unreachable",
    "icmpv6 admin-prohibited",
    "::1/128",
)


def endpoints_of(protocol: str) -> str:
    """Return the map of endpoints of addresses: address . port . index."""
    return f"endpoints-{protocol}"


def node_endpoints_of(protocol: str) -> str:
    """Return the map of endpoints of node ports: port . index."""
    return f"node-endpoints-{protocol}"


def _endpoint_maps(family: Family) -> str:
    """Return the maps from which a random index chooses an endpoint.

    One for each protocol, since translation to a port needs its header.
    """
    lines = []
    for protocol in PROTOCOLS:
        data = f"{family.name} saddr . {protocol} sport"
        key = f"{protocol} dport . {INDEX}"
        lines += [
            f" map {endpoints_of(protocol)} {{ typeof {family.name} daddr . {key} : {data}; }}",
            f" map {node_endpoints_of(protocol)} {{ typeof {key} : {data}; }}",
        ]
    return "\n".join(lines)


def frame(
    family: Family,
    pods: str,
    services: str,
    *,
    dns: str = "",
    listeners: Iterable[tuple[str, int]] = (),
) -> str:
    """Return the body of a table's declaration; `pods` and `services` are networks.

    `dns` is the address of the cluster DNS, which answers pods and the host alone. `listeners` are
    addresses and TCP ports of the cluster itself, which no Service gets.
    """
    ip, address = family.name, f"{family.type} . inet_proto . inet_service"
    destination = f"{ip} daddr . meta l4proto . th dport"
    local_port = "fib daddr type local meta l4proto . th dport"
    refuse = "jump refuse"
    ports = ", ".join(f"{address} . {port}" for address, port in sorted(set(listeners)))
    own = f"{ip} daddr . tcp dport {{ {ports} }} return" if ports else ""
    # To itself, which keeps it from the host ports of pods: their translation comes later.
    kept = f"{ip} daddr {dns} meta l4proto {{ tcp, udp }} th dport 53 dnat to {dns}"
    asked = f"{ip} daddr {dns} {ip} saddr != {pods} fib saddr type != local counter drop"
    return f"""
 map {CLUSTER_IPS} {{ type {address} : verdict; }}
 map {EXTERNAL_IPS} {{ type {address} : verdict; }}
 map {NODE_PORTS} {{ type inet_proto . inet_service : verdict; }}
 map {NO_ENDPOINTS} {{ type {address} : verdict; }}
 map {NO_ENDPOINT_PORTS} {{ type inet_proto . inet_service : verdict; }}
 map {SOURCE_RANGES} {{ type {address} : verdict; }}
{_endpoint_maps(family)}
 set {HAIRPINS} {{ type {family.type} . {family.type}; }}
 set {POD_LINKS} {{ type ifname; }}
 map {INGRESS} {{ type {family.type} : verdict; }}
 map {EGRESS} {{ type {family.type} : verdict; }}

 chain refuse {{
  meta l4proto tcp reject with tcp reset
  reject with {family.closed}
 }}
 chain unserved {{
  {destination} vmap @{NO_ENDPOINTS}
  {local_port} vmap @{NO_ENDPOINT_PORTS}
  {ip} daddr {services} {refuse}
 }}
 chain services {{
  {destination} vmap @{CLUSTER_IPS}
  {own}
  {kept if dns else ""}
  {destination} vmap @{EXTERNAL_IPS}
  {ip} daddr != {family.loopback} {local_port} vmap @{NODE_PORTS}
 }}
 chain egress-of-pods {{
  {ip} saddr vmap @{EGRESS}
  counter drop
 }}
 chain ingress-of-pods {{
  {ip} daddr vmap @{INGRESS}
  counter reject with {family.absent}
 }}
 chain source-ranges {{
  type filter hook prerouting priority -110; policy accept;
  ct state new {destination} vmap @{SOURCE_RANGES}
 }}
 chain spoofing {{
  type filter hook prerouting priority -150; policy accept;
  iifname @{POD_LINKS} {ip} daddr {family.loopback} counter drop
  iifname @{POD_LINKS} fib saddr . iif oif missing counter drop
  iifname @{POD_LINKS} {ip} saddr != {pods} counter drop
  {ip} saddr {pods} fib saddr . iif oif missing counter drop
 }}
 chain nat-prerouting {{
  type nat hook prerouting priority -101; policy accept;
  jump services
 }}
 chain nat-output {{
  type nat hook output priority -101; policy accept;
  jump services
 }}
 chain nat-postrouting {{
  type nat hook postrouting priority 100; policy accept;
  {ip} saddr . {ip} daddr @{HAIRPINS} masquerade
  ct status dnat meta mark & {MASQUERADE_MARK:#x} != 0 {ip} daddr != {pods} masquerade
 }}
 chain input {{
  type filter hook input priority -10; policy accept;
  {asked if dns else ""}
  ct state established,related accept
  iifname "lo" accept
  {local_port} vmap @{NO_ENDPOINT_PORTS}
  {ip} saddr {pods} jump egress-of-pods
 }}
 chain forward {{
  type filter hook forward priority -10; policy accept;
  ct state established,related accept
  jump unserved
  {ip} saddr . {ip} daddr @{HAIRPINS} accept
  {ip} saddr {pods} jump egress-of-pods
  {ip} daddr {pods} jump ingress-of-pods
 }}
 chain output {{
  type filter hook output priority -10; policy accept;
  ct state established,related accept
  jump unserved
 }}"""


def table_name(cluster_id: str) -> str:
    """Return the name of a cluster's tables, which no other cluster on the host has."""
    return f"moorage-{cluster_id}"


def tables_removal(cluster_id: str) -> str:
    """Return the script that removes a cluster's tables, whether or not they exist."""
    name = table_name(cluster_id)
    # A table is deleted only where there is one.
    return "".join(
        f"add table {family.name} {name}\ndelete table {family.name} {name}\n"
        for family in (IPV4, IPV6)
    )


def foreign_frame() -> str:
    """Return the body of a table for a family of which the cluster's pods have no addresses.

    Their links have addresses of it all the same, by which they would reach the host.
    """
    return f"""
 set {POD_LINKS} {{ type ifname; }}
 chain forward {{
  type filter hook forward priority -10; policy accept;
 }}
 chain foreign {{
  type filter hook prerouting priority -150; policy accept;
  iifname @{POD_LINKS} counter drop
 }}"""
