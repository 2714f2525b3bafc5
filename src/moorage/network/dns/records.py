"""Records: what the cluster DNS needs to know of a Service, and how it is sent to its process.

The process that answers has no access to the API: the network agent sends it these, as lines of
JSON over a Unix socket, first all of them, then each change. Source: Kubernetes DNS-Based Service
Discovery 1.1.0.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.api.services import Service
from moorage.network.objects import EndpointSlice

MAX_LINE_BYTES = 8 << 20
"""Longest line: a Service with some hundred thousand endpoints."""


class PortRecord(msgspec.Struct, frozen=True, array_like=True):
    name: str
    protocol: str
    number: int


class EndpointRecord(msgspec.Struct, frozen=True, array_like=True):
    """A ready endpoint. `hostname` is the pod's, empty if it has none."""

    address: str
    hostname: str
    ports: tuple[PortRecord, ...]


class ServiceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Service: with cluster IPs, headless with endpoints, or another name."""

    addresses: tuple[str, ...] = ()
    ports: tuple[PortRecord, ...] = ()
    endpoints: tuple[EndpointRecord, ...] = ()
    external_name: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line: a Service or a namespace, which is gone without `record` or `is_there`.

    `complete` ends the first part; what was not in it is forgotten then.
    """

    service: str = ""
    record: ServiceRecord | None = None
    namespace: str = ""
    is_there: bool = False
    complete: bool = False


def service_record(service: Service, slices: Iterable[EndpointSlice]) -> ServiceRecord:
    """Return the record of a Service."""
    spec = service.spec
    if spec.type == "ExternalName":
        return ServiceRecord(external_name=spec.external_name)
    if spec.cluster_ip not in ("", "None"):
        ports = tuple(
            PortRecord(port.name, (port.protocol or "TCP").lower(), port.port)
            for port in spec.ports
        )
        return ServiceRecord(addresses=spec.cluster_ips or (spec.cluster_ip,), ports=ports)
    endpoints: dict[tuple[str, str], EndpointRecord] = {}
    for one in slices:
        ports = tuple(
            PortRecord(port.name or "", (port.protocol or "TCP").lower(), port.port)
            for port in one.ports
            if port.port is not None
        )
        for endpoint in one.endpoints:
            if not endpoint.is_ready or one.address_type == "FQDN":
                continue
            for address in endpoint.addresses:
                hostname = endpoint.hostname or ""
                # In two slices for a moment while it moves, or with other ports in each.
                known = endpoints.get((address, hostname))
                more = tuple(dict.fromkeys((*known.ports, *ports))) if known else ports
                endpoints[address, hostname] = EndpointRecord(address, hostname, more)
    return ServiceRecord(endpoints=tuple(endpoints.values()))
