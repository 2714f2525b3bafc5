"""Addresses as users write them, parsed: nothing else of theirs gets into a script of nft."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address | None:
    """Return an address, None for any other text."""
    network = parse_network(text)
    if network is None or network.prefixlen != network.max_prefixlen:
        return None
    return network.network_address


def parse_network(text: str) -> Network | None:
    """Return a network, without bits after its prefix; None for any other text.

    An IPv6 address with a zone is none: the zone may be any text.
    """
    if "%" in text:
        return None
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
