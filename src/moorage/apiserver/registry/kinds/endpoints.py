"""Endpoints and EndpointSlices. Source: core and discovery validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CORE, NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    always_text,
    immutable,
    most_items,
    required_one_of,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.addresses import endpoint_address_errors
from moorage.apiserver.registry.validation.containers import port_number_errors

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_SHOWN = 3
_TYPE = "io.k8s.api.discovery.v1.EndpointSlice"
_UNSET = "<unset>"
_ANY_PORT = "*"


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


def shortened(entries: Sequence[str]) -> str:
    """Format a list as `a,b,c + 2 more...`; empty for no entries."""
    text = ",".join(entries[:_SHOWN])
    hidden = len(entries) - _SHOWN
    return f"{text} + {hidden} more..." if hidden > 0 else text


def _subset_errors(subset: Obj, path: str) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield FieldError.required(path, "must specify `addresses` or `notReadyAddresses`")


def _subset_port_errors(ports: list[Obj], path: str) -> Iterator[FieldError]:
    for number, port in enumerate(ports):
        yield from endpoint_port_errors(port, f"{path}[{number}]", needs_name=len(ports) > 1)


def _subsets_text(subsets: list[Obj]) -> str:
    addresses = [text for subset in subsets for text in _subset_addresses(subset)]
    return shortened(addresses) if subsets else NONE


def _subset_addresses(subset: Obj) -> Iterator[str]:
    """`ip:port`, port by port; bare addresses for a headless service without ports."""
    addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
    ports = subset.get("ports") or ()
    if not ports:
        yield from addresses
    for port in ports:
        for ip in addresses:
            host = f"[{ip}]" if ":" in ip else ip
            yield f"{host}:{port.get('port', 0)}"


validate_endpoints = validator(
    ("subsets[*]", _subset_errors),
    ("subsets[*].addresses[*].ip", always_text(endpoint_address_errors)),
    ("subsets[*].notReadyAddresses[*].ip", always_text(endpoint_address_errors)),
    ("subsets[*].ports", _subset_port_errors),
)

ENDPOINTS = Kind(
    name="Endpoints",
    plural="endpoints",
    served=(
        Served(
            "",
            "v1",
            "io.k8s.api.core.v1.Endpoints",
            warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ),
    short_names=("ep",),
    strategy=Strategy(
        default=defaults(("subsets[*].ports[*].protocol", "TCP")),
        validate=validate_endpoints,
        validate_update=update(validate_endpoints),
        may_create_on_update=True,
    ),
    printer=printer(
        NAME,
        column("Endpoints", "subsets", of=f"{CORE}.Endpoints", absent=NONE, show=_subsets_text),
        AGE,
    ),
)


def _endpoint_errors(endpoint_slice: Obj) -> Iterator[FieldError]:
    kind = endpoint_slice.get("addressType", "")
    for index, endpoint in enumerate(endpoint_slice.get("endpoints", ())):
        path = f"endpoints[{index}].addresses"
        if not endpoint.get("addresses"):
            yield FieldError.required(path, "must contain at least 1 address")
        for number, address in enumerate(endpoint.get("addresses", ())):
            if kind != "FQDN":
                yield from endpoint_address_errors(address, f"{path}[{number}]")


def _port_errors(ports: list[Obj], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        if name in seen:
            yield FieldError.duplicate(path, name)
        seen.add(name)
        yield from endpoint_port_errors(
            port, f"{path}[{index}]", needs_name=False, may_be_open=True
        )


def _ports_text(ports: list[Obj]) -> str:
    return shortened([_port_text(port) for port in ports]) or _UNSET


def _addresses_text(endpoints: list[Obj]) -> str:
    addresses = [address for endpoint in endpoints for address in endpoint.get("addresses") or ()]
    return shortened(addresses) or _UNSET


def _port_text(port: Obj) -> str:
    if port.get("port") is not None:
        return str(port["port"])
    return str(port.get("name", _ANY_PORT))


validate_endpoint_slice = validator(
    ("addressType", required_one_of("FQDN", "IPv4", "IPv6")),
    ("endpoints", most_items(1000)),
    ("", without_path(_endpoint_errors)),
    ("ports", most_items(20000), _port_errors),
)

ENDPOINT_SLICE = Kind(
    name="EndpointSlice",
    plural="endpointslices",
    served=(Served("discovery.k8s.io", "v1", _TYPE),),
    strategy=Strategy(
        default=defaults(("ports[*].name", ""), ("ports[*].protocol", "TCP")),
        validate=validate_endpoint_slice,
        validate_update=update(validate_endpoint_slice, after=immutable("addressType")),
        spec_of=lambda obj: {key: obj.get(key) for key in ("addressType", "endpoints", "ports")},
    ),
    printer=printer(
        NAME,
        column("AddressType", "addressType", of=_TYPE),
        column("Ports", "ports", of=_TYPE, absent=_UNSET, show=_ports_text),
        column("Endpoints", "endpoints", of=_TYPE, absent=_UNSET, show=_addresses_text),
        AGE,
    ),
)
