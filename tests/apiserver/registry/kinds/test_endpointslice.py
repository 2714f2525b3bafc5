"""EndpointSlices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import row
from tests.apiserver.registry.rules import changed, complaint, update_complaint


@pytest.mark.parametrize(
    ("sets", "says"),
    [
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
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str | None) -> None:
    error = complaint("EndpointSlice", changed("EndpointSlice", sets))
    if says is None:
        assert error is None
    else:
        assert error is not None
        assert says in error.partition(" is invalid: ")[2]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"addressType": "IPv6"},
         'addressType: Invalid value: "IPv6": field is immutable'),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    error = update_complaint(
        "EndpointSlice", changed("EndpointSlice", after), changed("EndpointSlice", before)
    )
    assert (error or "") == says


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}],
                           "endpoints": [{"addresses": ["10.0.0.1"]}]},
         ["x", "IPv4", "80,any", "10.0.0.1", "90s"]),
        ({"addressType": "IPv4"}, ["x", "IPv4", "<unset>", "<unset>", "90s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("EndpointSlice", fields) == cells
