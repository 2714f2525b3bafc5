"""EndpointSlices. Source: discovery validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.shortening import shortened
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    immutable,
    most_items,
    required_one_of,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.endpoint import (
    endpoint_address_errors,
    endpoint_port_errors,
)

_TYPE = "io.k8s.api.discovery.v1.EndpointSlice"
_UNSET = "<unset>"
_ANY_PORT = "*"


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
    served=(Served(group="discovery.k8s.io", version="v1", type=_TYPE),),
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
