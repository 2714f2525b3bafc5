"""Endpoints and endpoint slices."""

from __future__ import annotations

from moorage.registry.kind import Obj


def default_endpoints(endpoints: Obj) -> None:
    for subset in endpoints.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def default_endpoint_slice(endpoint_slice: Obj) -> None:
    for port in endpoint_slice.get("ports", ()):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
