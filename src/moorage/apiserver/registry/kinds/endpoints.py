"""Endpoints. Source: core validation `ValidateEndpoints`, Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, CORE, NAME, NONE, age_of, name_of
from moorage.apiserver.registry.columns.shortening import shortened
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.endpoint import (
    endpoint_address_errors,
    endpoint_port_errors,
)


def default_endpoints(endpoints: Obj) -> None:
    """Set the API defaults of an Endpoints object."""
    for subset in endpoints.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def validate_endpoints(endpoints: Obj) -> list[FieldError]:
    """Return the errors of a new Endpoints object."""
    errors: list[FieldError] = []
    for index, subset in enumerate(endpoints.get("subsets", ())):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(
                FieldError.required(path, "must specify `addresses` or `notReadyAddresses`")
            )
        for field in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(field, ())):
                errors += endpoint_address_errors(
                    address.get("ip", ""), f"{path}.{field}[{number}].ip"
                )
        ports = subset.get("ports", [])
        for number, port in enumerate(ports):
            errors += endpoint_port_errors(
                port, f"{path}.ports[{number}]", needs_name=len(ports) > 1
            )
    return errors


def validate_endpoints_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of an Endpoints object."""
    del old
    return validate_endpoints(new)


def _endpoints_cells(endpoints: Obj, now: float) -> list[Any]:
    subsets = endpoints.get("subsets") or ()
    addresses = [text for subset in subsets for text in _subset_addresses(subset)]
    return [
        name_of(endpoints),
        shortened(addresses) if subsets else NONE,
        age_of(endpoints, now),
    ]


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


_PRINTER = Printer(
    columns=(NAME, Column("Endpoints", documented_by=f"{CORE}.Endpoints.subsets"), AGE),
    cells=_endpoints_cells,
)

ENDPOINTS = Kind(
    name="Endpoints",
    plural="endpoints",
    served=(
        Served(
            group="",
            version="v1",
            type="io.k8s.api.core.v1.Endpoints",
            warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ),
    short_names=("ep",),
    strategy=Strategy(
        default=default_endpoints,
        validate=validate_endpoints,
        validate_update=validate_endpoints_update,
        may_create_on_update=True,
    ),
    printer=_PRINTER,
)
