"""Endpoints. Source: core validation `ValidateEndpoints`, Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CORE, NONE
from moorage.apiserver.registry.columns.shortening import shortened
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import always_text, update, validator
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.endpoint import (
    endpoint_address_errors,
    endpoint_port_errors,
)


def _subset_errors(subset: Obj, path: str) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield FieldError.required(path, "must specify `addresses` or `notReadyAddresses`")


def _port_errors(ports: list[Obj], path: str) -> Iterator[FieldError]:
    for number, port in enumerate(ports):
        yield from endpoint_port_errors(port, f"{path}[{number}]", needs_name=len(ports) > 1)


def _addresses_text(subsets: list[Obj]) -> str:
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
    ("subsets[*].ports", _port_errors),
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
        default=defaults(("subsets[*].ports[*].protocol", "TCP")),
        validate=validate_endpoints,
        validate_update=update(validate_endpoints),
        may_create_on_update=True,
    ),
    printer=printer(
        NAME,
        column("Endpoints", "subsets", of=f"{CORE}.Endpoints", absent=NONE, show=_addresses_text),
        AGE,
    ),
)
