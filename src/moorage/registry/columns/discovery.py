"""EndpointSlices: the first few addresses and ports."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.registry.columns.shortening import shortened
from moorage.registry.kind import Column, Obj, Printer

_TYPE = "io.k8s.api.discovery.v1.EndpointSlice"
_UNSET = "<unset>"
_ANY_PORT = "*"


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


ENDPOINT_SLICES = Printer(
    columns=(
        NAME,
        Column("AddressType", documented_by=f"{_TYPE}.addressType"),
        Column("Ports", documented_by=f"{_TYPE}.ports"),
        Column("Endpoints", documented_by=f"{_TYPE}.endpoints"),
        AGE,
    ),
    cells=_endpoint_slice_cells,
)
