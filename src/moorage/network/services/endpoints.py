"""Endpoints of a Service port, as one node chooses among them. Pure.

Source: kube-proxy `CategorizeEndpoints`; KEP-1669 (terminating endpoints), KEP-2086 (internal
traffic policy), KEP-4444 (traffic distribution).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from moorage.api.services import Service, ServicePort
from moorage.network.addresses import Address, parse_address
from moorage.network.objects import EndpointSlice, SliceEndpoint

LOCAL: Final = "Local"
_BROADCAST: Final = "255.255.255.255"
ADDRESS_TYPES: Final = {"ip": "IPv4", "ip6": "IPv6"}
"""The slices' address type for the name of a family of nftables."""


@dataclass(frozen=True, slots=True)
class Place:
    """The node on which the choice is made."""

    node: str
    zone: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Where a connection is sent."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Targets for connections from inside the cluster and from outside.

    `has_any` says whether the port has targets elsewhere when it has none here: connections are
    then dropped, as upstream, not refused.
    """

    internal: tuple[Target, ...] = ()
    external: tuple[Target, ...] = ()
    has_any: bool = False
    is_local_only: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    target: Target
    endpoint: SliceEndpoint

    def is_on(self, place: Place) -> bool:
        return self.endpoint.node_name == place.node


def choose(
    service: Service, port: ServicePort, slices: Iterable[EndpointSlice], family: str, place: Place
) -> Choice:
    """Return the targets of a port of a Service in one family."""
    candidates = _candidates(port, slices, family)
    on_node = [one for one in candidates if one.is_on(place)]
    cluster = _targets(_hinted(_usable(candidates), place))
    local = _targets(_usable(on_node))
    spec = service.spec
    has_any = any(one.endpoint.is_ready or one.endpoint.is_serving for one in candidates)
    is_local = spec.external_traffic_policy == LOCAL
    return Choice(
        internal=local if spec.internal_traffic_policy == LOCAL else cluster,
        external=local if is_local else cluster,
        has_any=has_any,
        is_local_only=is_local,
    )


def local_endpoints(slices: Iterable[EndpointSlice], place: Place) -> int:
    """Return how many ready addresses a Service has on the node, for its health check."""
    return len(
        {
            address
            for one in slices
            for endpoint in one.endpoints
            if endpoint.is_ready and endpoint.node_name == place.node
            for address in endpoint.addresses
        }
    )


def _candidates(
    port: ServicePort, slices: Iterable[EndpointSlice], family: str
) -> list[_Candidate]:
    found: dict[Target, _Candidate] = {}
    for one in slices:
        if one.address_type != ADDRESS_TYPES[family]:
            continue
        for slice_port in one.ports:
            is_same = (slice_port.name or "") == port.name and (slice_port.protocol or "TCP") == (
                port.protocol or "TCP"
            )
            if not is_same or slice_port.port is None:
                continue
            for endpoint in one.endpoints:
                # Consumers use the first address. Source: discovery.k8s.io/v1 `addresses`.
                for text in endpoint.addresses[:1]:
                    address = parse_address(text)
                    if address is None or not _is_allowed(address):
                        continue
                    target = Target(str(address), slice_port.port)
                    # In two slices for a moment while it moves from one to the other.
                    if target not in found or endpoint.is_ready:
                        found[target] = _Candidate(target, endpoint)
    return sorted(found.values(), key=lambda one: one.target)


def _is_allowed(address: Address) -> bool:
    """Say whether an endpoint may have an address, also in a slice that a user wrote.

    Source: apimachinery `ValidateEndpointIP`.
    """
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or str(address) == _BROADCAST
    )


def _usable(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the ready ones; without any, those that still serve while they terminate."""
    ready = [one for one in candidates if one.endpoint.is_ready]
    if ready:
        return ready
    return [one for one in candidates if one.endpoint.is_serving and one.endpoint.is_terminating]


def _hinted(candidates: list[_Candidate], place: Place) -> list[_Candidate]:
    """Return those hinted for this node, else for its zone, else all.

    Hints count only where every endpoint has one, since others would get no traffic.
    """
    return (
        _preferred(candidates, lambda hints: [hint.name for hint in hints.for_nodes], place.node)
        or _preferred(candidates, lambda hints: [hint.name for hint in hints.for_zones], place.zone)
        or candidates
    )


def _preferred(
    candidates: list[_Candidate], names_of: Callable[..., list[str]], name: str
) -> list[_Candidate]:
    hinted = [names_of(one.endpoint.hints) if one.endpoint.hints else [] for one in candidates]
    if not name or not all(hinted):
        return []
    return [one for one, names in zip(candidates, hinted, strict=True) if name in names]


def _targets(candidates: list[_Candidate]) -> tuple[Target, ...]:
    return tuple(one.target for one in candidates)
