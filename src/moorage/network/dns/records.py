"""Records: what the cluster DNS needs to know of a Service, and how it is sent to its process.

The process that answers has no access to the API: the network agent sends it these, as lines of
JSON over a Unix socket, first all of them, then each change. Source: Kubernetes DNS-Based Service
Discovery 1.1.0.
"""

from __future__ import annotations

import msgspec

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
