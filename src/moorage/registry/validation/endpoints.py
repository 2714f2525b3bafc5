"""Endpoints and endpoint slices. Source: core and discovery validation of Kubernetes 1.36."""

from __future__ import annotations

import ipaddress

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.validation.containers import port_number_errors

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_ENDPOINTS = 1000
_MAX_PORTS = 20000


def validate_endpoints(endpoints: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, subset in enumerate(endpoints.get("subsets", ())):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(
                FieldError.required(path, "must specify `addresses` or `notReadyAddresses`")
            )
        for field in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(field, ())):
                errors += _address_errors(address.get("ip", ""), f"{path}.{field}[{number}].ip")
        ports = subset.get("ports", [])
        for number, port in enumerate(ports):
            errors += _port_errors(port, f"{path}.ports[{number}]", needs_name=len(ports) > 1)
    return errors


def validate_endpoints_update(new: Obj, old: Obj) -> list[FieldError]:
    del old
    return validate_endpoints(new)


def validate_endpoint_slice(endpoint_slice: Obj) -> list[FieldError]:
    kind = endpoint_slice.get("addressType", "")
    errors: list[FieldError] = []
    if not kind:
        errors.append(FieldError.required("addressType"))
    elif kind not in _ADDRESS_TYPES:
        errors.append(FieldError.not_supported("addressType", kind, _ADDRESS_TYPES))
    endpoints, ports = endpoint_slice.get("endpoints", []), endpoint_slice.get("ports", [])
    if len(endpoints) > _MAX_ENDPOINTS:
        errors.append(FieldError.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
    for index, endpoint in enumerate(endpoints):
        path = f"endpoints[{index}].addresses"
        if not endpoint.get("addresses"):
            errors.append(FieldError.required(path, "must contain at least 1 address"))
        for number, address in enumerate(endpoint.get("addresses", ())):
            if kind != "FQDN":
                errors += _address_errors(address, f"{path}[{number}]")
    if len(ports) > _MAX_PORTS:
        errors.append(FieldError.too_many("ports", len(ports), _MAX_PORTS))
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        if name in seen:
            errors.append(FieldError.duplicate("ports", name))
        seen.add(name)
        errors += _port_errors(port, f"ports[{index}]", needs_name=False, may_be_open=True)
    return errors


def validate_endpoint_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = validate_endpoint_slice(new)
    if new.get("addressType") != old.get("addressType"):
        errors.append(
            FieldError.invalid("addressType", new.get("addressType", ""), "field is immutable")
        )
    return errors


def _address_errors(address: str, path: str) -> list[FieldError]:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        message = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return [FieldError.invalid(path, address, message)]
    for is_wrong, what in (
        (parsed.is_unspecified, "may not be unspecified (0.0.0.0 or ::)"),
        (parsed.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (parsed.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            parsed.is_multicast and parsed in ipaddress.ip_network("224.0.0.0/24"),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ):
        if is_wrong:
            return [FieldError.invalid(path, address, what)]
    return []


def _port_errors(
    port: Obj, path: str, *, needs_name: bool, may_be_open: bool = False
) -> list[FieldError]:
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
