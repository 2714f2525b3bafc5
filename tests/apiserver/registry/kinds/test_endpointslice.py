"""EndpointSlices."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import creations, updates

test_creation = creations("EndpointSlice", cases=[
    ({"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{}]}, None),
    ({"endpoints": [{"addresses": []}]},
     "endpoints[0].addresses: Required value: must contain at least 1 address"),
    ({"addressType": "X"},
     'addressType: Unsupported value: "X": supported values: "FQDN", "IPv4", "IPv6"'),
    ({"ports": [{"name": "a"}, {"name": "a"}]},
     'ports: Duplicate value: "a"'),
    ({"endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
     "endpoints: Too many: 1001: must have at most 1000 items"),
    ({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]}, None),
])  # fmt: skip


test_update = updates("EndpointSlice", cases=[
    ({}, {"addressType": "IPv6"},
     'addressType: Invalid value: "IPv6": field is immutable'),
])  # fmt: skip


test_row = rows("EndpointSlice", cases=[
    ({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}],
                       "endpoints": [{"addresses": ["10.0.0.1"]}]},
     ["x", "IPv4", "80,any", "10.0.0.1", "90s"]),
    ({"addressType": "IPv4"}, ["x", "IPv4", "<unset>", "<unset>", "90s"]),
])  # fmt: skip
