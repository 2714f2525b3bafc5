"""The discovery group: endpoint slices."""

from __future__ import annotations

from moorage.registry import columns, defaults, validation
from moorage.registry.kind import Kind, Served, Strategy

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
        default=defaults.default_endpoint_slice,
        validate=validation.validate_endpoint_slice,
        validate_update=validation.validate_endpoint_slice_update,
        spec_of=lambda obj: {key: obj.get(key) for key in ("addressType", "endpoints", "ports")},
    ),
    printer=columns.ENDPOINT_SLICES,
)
