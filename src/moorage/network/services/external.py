"""External addresses: which Service has a port of an address that is no cluster IP.

Anyone who may create a Service names any address in it. One in the cluster's own networks would be
another Service or a pod, and one on which the host listens would be the host (CVE-2020-8554); both
are left alone. Where several Services name one, the oldest has it whole, and the next one after it:
never some connections one and some the other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator

from moorage.api.logs import Log
from moorage.api.services import Service
from moorage.linux.listeners import is_listening, is_local
from moorage.network.addresses import Network, parse_address
from moorage.network.services.rules import load_balancer_addresses
from moorage.wire.client.informer import object_key

AddressPort = tuple[str, str, int]
"""Address, protocol in lower case, port."""

log = Log(__name__)


class ExternalAddresses:
    """Claims of Services, by `namespace/name`."""

    def __init__(self, cluster: Iterable[Network], is_hosts: Callable[[AddressPort], bool]) -> None:
        """`cluster` are its own networks; `is_hosts` says whether a program of the host has one."""
        self._cluster = tuple(cluster)
        self._is_hosts = is_hosts
        self._claims: dict[AddressPort, dict[str, tuple[str, str]]] = {}
        self._places: dict[str, frozenset[AddressPort]] = {}

    def claim(self, key: str, service: Service | None) -> set[str]:
        """Note what a Service names, None for one that is gone; return others that this changes."""
        before = self._places.pop(key, frozenset())
        places = frozenset(() if service is None else self._allowed(service, before))
        touched: set[str] = set()
        for place in before - places:
            claims = self._claims[place]
            if self._owner(place) == key:
                touched |= claims.keys()
            del claims[key]
            if not claims:
                del self._claims[place]
        for place in places:
            assert service is not None
            claims = self._claims.setdefault(place, {})
            claims[key] = (service.metadata.creation_timestamp or "", key)
            if self._owner(place) == key:
                touched |= claims.keys()
            elif place not in before:
                log.warning("address has another Service", service=key, owner=self._owner(place))
        if places:
            self._places[key] = places
        return touched - {key}

    def has(self, key: str, place: AddressPort) -> bool:
        """Say whether a Service has a port of an address."""
        return place in self._claims and self._owner(place) == key

    def _owner(self, place: AddressPort) -> str:
        claims = self._claims[place]
        return min(claims, key=lambda key: claims[key])

    def _allowed(self, service: Service, before: frozenset[AddressPort]) -> Iterator[AddressPort]:
        for text in (*service.spec.external_ips, *load_balancer_addresses(service)):
            address = parse_address(text)
            if address is None or not self._is_outside(address):
                continue
            for port in service.spec.ports:
                place = str(address), (port.protocol or "TCP").lower(), port.port
                # One that it has is not looked at again: the host does not listen there.
                if place in before or not self._is_hosts(place):
                    yield place
                else:
                    name = object_key(service.metadata)
                    log.warning("a program of the host has the address", service=name, place=place)

    def _is_outside(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        is_special = (
            address.is_loopback or address.is_link_local
            or address.is_multicast or address.is_unspecified
        )  # fmt: skip
        return not is_special and not any(address in network for network in self._cluster)


def is_hosts(place: AddressPort) -> bool:
    """Say whether a program of the host has a port of an address of the host."""
    address, protocol, port = place
    return (
        protocol in ("tcp", "udp") and is_local(address) and is_listening(address, protocol, port)
    )
