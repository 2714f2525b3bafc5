"""Rules of a Service: its addresses and ports lead to a chain that chooses an endpoint. Pure.

    cluster-ips    10.96.0.7 . tcp . 80   ─▶ pick-tcp-3 ─▶ endpoints-tcp  10.96.0.7 . 80 . 0…2
    node-ports     tcp . 30080            ─▶ pick-node-tcp-3 ─▶ node-endpoints-tcp  30080 . 0…2

Maps alone, since a chain for each Service would take minutes to load where there are thousands, and
a packet would not find its chain faster. Only session affinity has chains and sets of its own.

Source: core/v1 Service; kube-proxy `proxier.go` of its nftables mode, for what users see.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from moorage.api.services import Service, ServicePort
from moorage.network import frame
from moorage.network.addresses import Network, parse_address, parse_network
from moorage.network.frame import Family
from moorage.network.objects import PROXY_NAME, EndpointSlice
from moorage.network.services.endpoints import Choice, Place, Target, choose
from moorage.network.tables import EMPTY, Collection, Fragment

_AFFINITY_S: Final = 10800
_HASH_DIGITS: Final = 32
REFUSE: Final = "jump refuse"

Targets: TypeAlias = tuple[Target, ...]


def service_fragment(
    service: Service | None,
    slices: Iterable[EndpointSlice],
    family: Family,
    place: Place,
    pods: Network,
    has_external: Callable[[tuple[str, str, int]], bool] = lambda _: True,
) -> Fragment:
    """Return the rules of a Service in one family, empty if it has no address there.

    `pods` is the network of this node's pods, which need no masquerading; `has_external` says
    whether the Service has a protocol and port of an address that is no cluster IP.
    """
    if service is None or not _is_proxied(service):
        return EMPTY
    slices = tuple(slices)
    builder = _Builder(service, family, pods, has_external)
    for port in service.spec.ports:
        builder.add(port, choose(service, port, slices, family.name, place))
    return builder.fragment()


def load_balancer_addresses(service: Service) -> list[str]:
    """Return the addresses of a load balancer that this node answers for, mode VIP."""
    if service.spec.type != "LoadBalancer":
        return []
    status = service.status.get("loadBalancer") if isinstance(service.status, dict) else None
    entries = status.get("ingress") if isinstance(status, dict) else None
    return [
        entry["ip"]
        for entry in entries or []
        if isinstance(entry, dict) and entry.get("ip") and entry.get("ipMode", "VIP") == "VIP"
    ]


def _is_proxied(service: Service) -> bool:
    spec = service.spec
    return (
        spec.type != "ExternalName"
        and spec.cluster_ip not in ("", "None")
        and PROXY_NAME not in service.metadata.labels
    )


class _Builder:
    """Collects a fragment, port by port."""

    def __init__(
        self, service: Service, family: Family, pods: Network,
        has_external: Callable[[tuple[str, str, int]], bool],
    ) -> None:  # fmt: skip
        self._service = service
        self._family = family
        self._pods = pods
        self._has_external = has_external
        self._chains: dict[str, tuple[str, ...]] = {}
        self._collections: dict[str, Collection] = {}
        self._elements: dict[str, dict[str, str]] = {}
        self._timeout_s = _affinity_s(service)
        cluster = service.spec.cluster_ips or (service.spec.cluster_ip,)
        self._cluster_ips = self._of_family(cluster)
        self._external_ips = self._of_family(service.spec.external_ips)
        self._balancer_ips = self._of_family(load_balancer_addresses(service))

    def add(self, port: ServicePort, choice: Choice) -> None:
        protocol = (port.protocol or "TCP").lower()
        # Elsewhere there may be endpoints that a local policy leaves out.
        unserved = "drop" if choice.is_local_only and choice.has_any else REFUSE
        for address in self._cluster_ips:
            self._add_address(frame.CLUSTER_IPS, address, port, choice.internal, REFUSE)
        balancers = self._claimed(self._balancer_ips, protocol, port)
        for address in (*self._claimed(self._external_ips, protocol, port), *balancers):
            self._add_address(frame.EXTERNAL_IPS, address, port, choice.external, unserved)
        if port.node_port:
            self._add_node_port(port, choice.external, unserved)
        for target in {*choice.internal, *choice.external}:
            if self._is_pod(target):
                pair = f"{target.address} . {target.address}"
                self._put(frame.HAIRPINS, pair, "")
        self._add_source_ranges(self._name(port), protocol, port.port, balancers)

    def _claimed(
        self, addresses: Iterable[str], protocol: str, port: ServicePort
    ) -> tuple[str, ...]:
        return tuple(one for one in addresses if self._has_external((one, protocol, port.port)))

    def fragment(self) -> Fragment:
        return Fragment(self._chains, self._collections, self._elements)

    def _of_family(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Return those of the family, in one spelling: what a user wrote is no text for nft."""
        found = (parse_address(one) for one in addresses)
        return tuple(str(one) for one in found if one and one.version == self._family.version)

    def _networks(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return those of the family, merged: nft refuses sets whose ranges overlap."""
        found = (parse_network(text) for text in texts)
        mine = [one for one in found if one and one.version == self._family.version]
        return tuple(map(str, ipaddress.collapse_addresses(mine)))  # type: ignore[type-var]

    def _name(self, port: ServicePort) -> str:
        meta = self._service.metadata
        return _digest(f"{meta.namespace}/{meta.name}/{port.name}/{port.protocol}/{port.port}")

    def _put(self, collection: str, key: str, value: str) -> None:
        self._elements.setdefault(collection, {})[key] = value

    def _add_address(
        self, verdicts: str, address: str, port: ServicePort, targets: Targets, unserved: str
    ) -> None:
        protocol = (port.protocol or "TCP").lower()
        key = f"{address} . {protocol} . {port.port}"
        if not targets:
            self._put(frame.NO_ENDPOINTS, key, unserved)
        elif self._timeout_s:
            self._put(verdicts, key, f"goto {self._sticky_chain(port, protocol, targets)}")
        else:
            self._put(verdicts, key, f"goto {self._picking_chain('', protocol, targets)}")
            for index, target in enumerate(targets):
                place = f"{address} . {port.port} . {index}"
                self._put(frame.endpoints_of(protocol), place, f"{target.address} . {target.port}")

    def _add_node_port(self, port: ServicePort, targets: Targets, unserved: str) -> None:
        protocol, number = (port.protocol or "TCP").lower(), port.node_port
        key = f"{protocol} . {number}"
        if not targets:
            self._put(frame.NO_ENDPOINT_PORTS, key, unserved)
        elif self._timeout_s:
            self._put(frame.NODE_PORTS, key, f"goto {self._sticky_chain(port, protocol, targets)}")
        else:
            self._put(
                frame.NODE_PORTS, key, f"goto {self._picking_chain('node-', protocol, targets)}"
            )
            for index, target in enumerate(targets):
                self._put(
                    frame.node_endpoints_of(protocol),
                    f"{number} . {index}",
                    f"{target.address} . {target.port}",
                )

    def _picking_chain(self, prefix: str, protocol: str, targets: Targets) -> str:
        """Add the chain that picks one of so many endpoints, the same for all Services."""
        ip, count, mark = self._family.name, len(targets), self._mark(targets)
        name = f"pick-{prefix}{protocol}-{count}{'-masquerade' if mark else ''}"
        index = f"numgen random mod {count}"
        key, places = f"{ip} daddr . {protocol} dport . {index}", frame.endpoints_of(protocol)
        if prefix:
            key, places = f"{protocol} dport . {index}", frame.node_endpoints_of(protocol)
        self._chains[name] = (f"{mark}meta l4proto {protocol} dnat {ip} to {key} map @{places}",)
        return name

    def _mark(self, targets: Targets) -> str:
        """Return the statement that has packets masqueraded, where a target is no pod here."""
        if all(map(self._is_pod, targets)):
            return ""
        return f"meta mark set meta mark or {frame.MASQUERADE_MARK:#x} "

    def _is_pod(self, target: Target) -> bool:
        return ipaddress.ip_address(target.address) in self._pods

    def _sticky_chain(self, port: ServicePort, protocol: str, targets: Targets) -> str:
        """Add the chain that sends a client where its last connection went."""
        client, mark = f"{self._family.name} saddr", self._mark(targets)
        service = self._name(port)
        name, rules, chains = f"sticky-{_digest(f'{service}/{targets}')}", [], []
        for target in targets:
            digest = _digest(f"{service}/{target.address}/{target.port}")
            chain, clients = f"to-{digest}", f"of-{digest}"
            self._collections[clients] = Collection(
                "set", f"{self._family.type}; flags dynamic,timeout; timeout {self._timeout_s}s"
            )
            self._chains[chain] = (
                f"update @{clients} {{ {client} }}",
                f"{mark}meta l4proto {protocol} dnat to {self._end(target)}",
            )
            chains.append(chain)
            rules.append(f"{client} @{clients} goto {chain}")
        entries = ", ".join(f"{index} : goto {chain}" for index, chain in enumerate(chains))
        self._chains[name] = (*rules, f"numgen random mod {len(chains)} vmap {{ {entries} }}")
        return name

    def _end(self, target: Target) -> str:
        address = f"[{target.address}]" if self._family.name == "ip6" else target.address
        return f"{address}:{target.port}"

    def _add_source_ranges(
        self, name: str, protocol: str, port: int, addresses: Iterable[str]
    ) -> None:
        ranges = self._networks(self._service.spec.load_balancer_source_ranges)
        if not self._service.spec.load_balancer_source_ranges or not addresses:
            return
        chain = f"from-{name}"
        allowed = f"{self._family.name} saddr {{ {', '.join(ranges)} }} return"
        self._chains[chain] = (*([allowed] if ranges else []), "counter drop")
        for address in addresses:
            key = f"{address} . {protocol} . {port}"
            self._elements.setdefault(frame.SOURCE_RANGES, {})[key] = f"goto {chain}"


def _affinity_s(service: Service) -> int:
    """Return how long a client stays with its endpoint, 0 without affinity."""
    if service.spec.session_affinity != "ClientIP":
        return 0
    config: Mapping[str, Any] = service.spec.session_affinity_config or {}
    client: Mapping[str, Any] = config.get("clientIP") or {}
    return int(client.get("timeoutSeconds") or _AFFINITY_S)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
