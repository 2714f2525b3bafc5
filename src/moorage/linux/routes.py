"""Routes of this host: the networks that it reaches, and through which interfaces.

Source: proc(5) `/proc/net/route`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

ROUTES: Final = Path("/proc/net/route")
_HOST_PREFIX: Final = 32


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the host's main table: a network, and the interface that it is reached through."""

    interface: str
    network: IPv4Network


def parse_routes(text: str) -> tuple[Route, ...]:
    """Parse the text of /proc/net/route. Source: proc(5)."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return tuple(Route(row[0], _network(row[1], row[7])) for row in rows if len(row) > 7)


def host_routes(table: Path = ROUTES) -> tuple[Route, ...]:
    """Return the IPv4 routes of this host; none if the kernel has no IPv4."""
    try:
        return parse_routes(table.read_text())
    except FileNotFoundError:
        return ()


def address_links(table: Path = ROUTES) -> Mapping[str, str]:
    """Return the interface of each address that has a route of its own. Raises OSError."""
    return {
        str(route.network.network_address): route.interface
        for route in parse_routes(table.read_text())
        if route.network.prefixlen == _HOST_PREFIX
    }


def _network(address: str, mask: str) -> IPv4Network:
    return IPv4Network((_address(address), str(_address(mask))), strict=False)


def _address(number: str) -> IPv4Address:
    # The kernel prints the four bytes as one number in host byte order.
    return IPv4Address(struct.pack("=I", int(number, 16)))
