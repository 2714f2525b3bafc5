"""EndpointSlices. Source: discovery validation of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.columns.shortening import shortened
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.endpoint import (
    endpoint_address_errors,
    endpoint_port_errors,
)

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_ENDPOINTS = 1000
_MAX_PORTS = 20000
_TYPE = "io.k8s.api.discovery.v1.EndpointSlice"
_UNSET = "<unset>"
_ANY_PORT = "*"


def default_endpoint_slice(endpoint_slice: Obj) -> None:
    """Set the API defaults of an EndpointSlice."""
    for port in endpoint_slice.get("ports", ()):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def validate_endpoint_slice(endpoint_slice: Obj) -> list[FieldError]:
    """Return the errors of a new EndpointSlice."""
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
                errors += endpoint_address_errors(address, f"{path}[{number}]")
    if len(ports) > _MAX_PORTS:
        errors.append(FieldError.too_many("ports", len(ports), _MAX_PORTS))
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        if name in seen:
            errors.append(FieldError.duplicate("ports", name))
        seen.add(name)
        errors += endpoint_port_errors(port, f"ports[{index}]", needs_name=False, may_be_open=True)
    return errors


def validate_endpoint_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of an EndpointSlice."""
    errors = validate_endpoint_slice(new)
    if new.get("addressType") != old.get("addressType"):
        errors.append(
            FieldError.invalid("addressType", new.get("addressType", ""), "field is immutable")
        )
    return errors


def _endpoint_slice_cells(slice_: Obj, now: float) -> list[Any]:
    ports = [_port_text(port) for port in slice_.get("ports") or ()]
    addresses = [
        address
        for endpoint in slice_.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    ]
    return [
        name_of(slice_),
        slice_.get("addressType", ""),
        shortened(ports) or _UNSET,
        shortened(addresses) or _UNSET,
        age_of(slice_, now),
    ]


def _port_text(port: Obj) -> str:
    if port.get("port") is not None:
        return str(port["port"])
    return str(port.get("name", _ANY_PORT))


_PRINTER = Printer(
    columns=(
        NAME,
        Column("AddressType", documented_by=f"{_TYPE}.addressType"),
        Column("Ports", documented_by=f"{_TYPE}.ports"),
        Column("Endpoints", documented_by=f"{_TYPE}.endpoints"),
        AGE,
    ),
    cells=_endpoint_slice_cells,
)

ENDPOINT_SLICE = Kind(
    name="EndpointSlice",
    plural="endpointslices",
    served=(
        Served(
            group="discovery.k8s.io",
            version="v1",
            type="io.k8s.api.discovery.v1.EndpointSlice",
        ),
    ),
    strategy=Strategy(
        default=default_endpoint_slice,
        validate=validate_endpoint_slice,
        validate_update=validate_endpoint_slice_update,
        spec_of=lambda obj: {key: obj.get(key) for key in ("addressType", "endpoints", "ports")},
    ),
    printer=_PRINTER,
)
