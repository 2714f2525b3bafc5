"""IP address and CIDR validation.

Source: apimachinery `validation.IsValidIPForLegacyField` and `IsValidCIDRForLegacyField` of
Kubernetes 1.36, with the gate StrictIPCIDRValidation on.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container

from moorage.api.errors import FieldError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NO_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_IPV4_LENGTH = 96
"""Bits of an IPv4-mapped IPv6 address before the IPv4 address."""


def parse_ip(text: str) -> IPAddress | None:
    """Return an address, None if it is malformed.

    As in Go's old parser, leading zeros of an octet do not make it octal. Zones are malformed.
    """
    head, colon, tail = text.rpartition(":")
    octets = tail.split(".")
    if len(octets) > 1:
        tail = ".".join(octet and (octet.lstrip("0") or "0") for octet in octets)
    return _parse_standard(head + colon + tail)


def _parse_standard(text: str) -> IPAddress | None:
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_cidr(text: str) -> Interface | None:
    """Return the address with its prefix length, None if malformed; zeros may lead in both."""
    address_text, _, length_text = text.partition("/")
    address = parse_ip(address_text)
    if address is None or not re.fullmatch("[0-9]+", length_text):
        return None
    length = length_text.lstrip("0") or "0"
    if len(length) > 3 or int(length) > address.max_prefixlen:
        return None
    return ipaddress.ip_interface((str(address), int(length)))


def ip_errors(address: str, path: str, known: Container[str] = ()) -> list[FieldError]:
    """Return the errors of an address at a field path. Those in `known` were there before."""
    if address in known:
        return []
    parsed = parse_ip(address)
    if parsed is None:
        return [FieldError.invalid(path, address, _NO_IP)]
    if _parse_standard(address) is None:
        return [FieldError.invalid(path, address, "must not have leading 0s")]
    if _is_mapped(parsed):
        detail = "must not be an IPv4-mapped IPv6 address"
        return [FieldError.invalid(path, address, detail)]
    return []


def strict_ip_details(address: str) -> list[str]:
    """Return the errors of an address that has to be in its canonical form."""
    if errors := ip_errors(address, ""):
        return [error.text.partition(": ")[2].partition(": ")[2] for error in errors]
    canonical = str(parse_ip(address))
    return [] if address == canonical else [f'must be in canonical form ("{canonical}")']


def strict_cidr_errors(value: str, path: str) -> list[FieldError]:
    """Return the errors of a CIDR value that has to be in its canonical form."""
    if errors := cidr_errors(value, path):
        return errors
    canonical = str(ipaddress.ip_network(value))
    if value == canonical:
        return []
    return [FieldError.invalid(path, value, f'must be in canonical form ("{canonical}")')]


def cidr_errors(value: str, path: str, known: Container[str] = ()) -> list[FieldError]:
    """Return the errors of a CIDR value at a field path. Those in `known` were there before."""
    if value in known:
        return []
    parsed = parse_cidr(value)
    if parsed is None:
        return [FieldError.invalid(path, value, _NO_CIDR)]
    if _has_leading_zeros(value):
        detail = "must not have leading 0s in IP or prefix length"
    elif _is_mapped(parsed.ip):
        detail = "must not have an IPv4-mapped IPv6 address"
    elif parsed.ip != parsed.network.network_address:
        detail = "must not have bits set beyond the prefix length"
    else:
        return []
    return [FieldError.invalid(path, value, detail)]


def ip_warnings(value: str, path: str) -> list[str]:
    """Return the warnings about a validated address."""
    parsed = parse_ip(value)
    if parsed is None:
        return []
    if _parse_standard(value) is None or _is_mapped(parsed):
        preferred = getattr(parsed, "ipv4_mapped", None) or parsed
        return [f'{path}: non-standard IP address "{value}" is invalid: use "{preferred}"']
    if str(parsed) != value:
        return [
            f'{path}: IPv6 address "{value}" should be in RFC 5952 canonical format ("{parsed}")'
        ]
    return []


def cidr_warnings(value: str, path: str) -> list[str]:
    """Return the warnings about a validated CIDR value."""
    parsed = parse_cidr(value)
    if parsed is None:
        return []
    preferred = _network_text(parsed.network)
    warnings = []
    if parsed.ip != parsed.network.network_address:
        single = f"{getattr(parsed.ip, 'ipv4_mapped', None) or parsed.ip}/{parsed.max_prefixlen}"
        warnings.append(
            f'{path}: CIDR value "{value}" is ambiguous in this context (should be "{preferred}" '
            f'or "{single}"?)'
        )
    if _has_leading_zeros(value) or _is_mapped(parsed.ip):
        warnings.append(f'{path}: non-standard CIDR value "{value}" is invalid: use "{preferred}"')
    if not warnings and parsed.with_prefixlen != value:
        warnings.append(
            f'{path}: IPv6 CIDR value "{value}" should be in RFC 5952 canonical format '
            f'("{preferred}")'
        )
    return warnings


def is_strict_subset(network: Network, of: Network) -> bool:
    """Return whether a network lies within another that is larger."""
    return (
        isinstance(network, ipaddress.IPv4Network) == isinstance(of, ipaddress.IPv4Network)
        and network.network_address in of
        and network.prefixlen > of.prefixlen
    )


def _has_leading_zeros(cidr: str) -> bool:
    address, _, length = cidr.partition("/")
    return _parse_standard(address) is None or (len(length) > 1 and length.startswith("0"))


def _is_mapped(address: IPAddress) -> bool:
    return getattr(address, "ipv4_mapped", None) is not None


def _network_text(network: Network) -> str:
    """Return a network as Go prints it: an IPv4-mapped one as the IPv4 network."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    return f"{mapped}/{network.prefixlen - _IPV4_LENGTH}" if mapped else str(network)


_LINK_LOCAL_MULTICAST: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = (
    ipaddress.IPv4Network("224.0.0.0/24"),
    # Any flags with the scope of a link, as Go's IsLinkLocalMulticast.
    *(ipaddress.IPv6Network(f"ff{flags:x}2::/16") for flags in range(16)),
)


def endpoint_address_errors(address: str, path: str) -> list[FieldError]:
    """Return the error of an IP address at a field path, if it cannot be an endpoint's."""
    try:
        parsed = ipaddress.ip_address(address)
        # Go reads an IPv4-mapped address as the IPv4 address.
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    except ValueError:
        message = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return [FieldError.invalid(path, address, message)]
    for is_wrong, what in (
        (parsed.is_unspecified, "may not be unspecified (0.0.0.0 or ::)"),
        (parsed.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (parsed.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            any(parsed in network for network in _LINK_LOCAL_MULTICAST),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ):
        if is_wrong:
            return [FieldError.invalid(path, address, what)]
    return []
