"""Endpoint validation: addresses and ports of endpoints and endpoint slices.

Source: core and discovery validation of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.containers import port_number_errors

_PROTOCOLS = ("SCTP", "TCP", "UDP")
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


def endpoint_port_errors(
    port: Obj, path: str, *, needs_name: bool, may_be_open: bool = False
) -> list[FieldError]:
    """Return the errors of an endpoint port at a field path.

    With `may_be_open` the number may be absent, as in endpoint slices.
    """
    errors: list[FieldError] = []
    name = port.get("name", "")
    if name:
        errors += [
            FieldError.invalid(f"{path}.name", name, e) for e in names.dns_label_errors(name)
        ]
    elif needs_name:
        errors.append(FieldError.required(f"{path}.name"))
    if "port" in port or not may_be_open:
        errors += port_number_errors(port.get("port", 0), f"{path}.port")
    protocol = port.get("protocol", "")
    if not protocol:
        errors.append(FieldError.required(f"{path}.protocol"))
    elif protocol not in _PROTOCOLS:
        errors.append(FieldError.not_supported(f"{path}.protocol", protocol, _PROTOCOLS))
    return errors
