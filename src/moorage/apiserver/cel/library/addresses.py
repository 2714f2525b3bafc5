"""IP addresses and networks: `ip("::1")`, `cidr("10.0.0.0/8")`.

Source: API docs "Kubernetes IP address library", "Kubernetes CIDR library".
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
)
from typing import Any

from moorage.apiserver.cel.library.declaring import Signature, Type, function, holds, method
from moorage.apiserver.cel.library.opaque import CIDR, IP

_Address = IPv4Address | IPv6Address
_Interface = IPv4Interface | IPv6Interface
_BROADCAST = IPv4Address("255.255.255.255")
_LOCAL_MULTICAST = ip_interface("224.0.0.0/24").network


def functions() -> list[Signature]:
    """Return the signatures of both libraries."""
    return [*_address_functions(), *_network_functions()]


def _address_functions() -> list[Signature]:
    address, text, flag = IP.cel, Type.STRING, Type.BOOL
    return [
        function("ip", [text], address, lambda value: IP(str(_address(value)))),
        method("ip", [CIDR.cel], address, lambda value: IP(str(_interface(value.text).ip))),
        function("isIP", [text], flag, holds(_address)),
        function("ip.isCanonical", [text], flag, lambda value: str(_address(value)) == value),
        method("family", [address], Type.INT, lambda value: _address(value.text).version),
        method("isUnspecified", [address], flag, lambda value: _address(value.text).is_unspecified),
        method("isLoopback", [address], flag, lambda value: _address(value.text).is_loopback),
        method(
            "isLinkLocalMulticast",
            [address],
            flag,
            lambda value: _is_local_multicast(_address(value.text)),
        ),
        method(
            "isLinkLocalUnicast", [address], flag, lambda value: _address(value.text).is_link_local
        ),
        method(
            "isGlobalUnicast",
            [address],
            flag,
            lambda value: _is_global_unicast(_address(value.text)),
        ),
    ]


def _network_functions() -> list[Signature]:
    network, text, flag = CIDR.cel, Type.STRING, Type.BOOL
    return [
        function("cidr", [text], network, lambda value: CIDR(str(_interface(value)))),
        function("isCIDR", [text], flag, holds(_interface)),
        method("containsIP", [network, text], flag, _contains_address),
        method("containsIP", [network, IP.cel], flag, lambda a, b: _contains_address(a, b.text)),
        method("containsCIDR", [network, text], flag, _contains_network),
        method("containsCIDR", [network, network], flag, lambda a, b: _contains_network(a, b.text)),
        method("masked", [network], network, lambda a: CIDR(str(_interface(a.text).network))),
        method("prefixLength", [network], Type.INT, lambda a: _interface(a.text).network.prefixlen),
    ]


def _address(text: str) -> _Address:
    """Parse an address. Raises ValueError in upstream's words."""
    if "%" in text:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ip_address(text)
    except ValueError as error:
        raise ValueError(
            f'IP Address "{text}" parse error during conversion from string: {error}'
        ) from error
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _is_local_multicast(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return address in _LOCAL_MULTICAST
    return address.is_multicast and address.packed[1] & 0x0F == 2


def _is_global_unicast(address: _Address) -> bool:
    return not (
        address == _BROADCAST
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


def _interface(text: str) -> _Interface:
    """Parse an address with a prefix length. Raises ValueError in upstream's words."""
    address, slash, length = text.partition("/")
    try:
        if not slash or not (length.isascii() and length.isdigit()):
            raise ValueError("no prefix length")
        if length != "0" and length.startswith("0"):
            raise ValueError("the prefix length has a leading zero")
        _address(address)
        return ip_interface(text)
    except ValueError as error:
        raise ValueError(
            f"network address parse error during conversion from string: {error}"
        ) from error


def _contains_address(network: Any, text: str) -> bool:
    return _address(text) in _interface(network.text).network


def _contains_network(network: Any, text: str) -> bool:
    outer, inner = _interface(network.text).network, _interface(text)
    return inner.ip in outer and inner.network.prefixlen >= outer.prefixlen
