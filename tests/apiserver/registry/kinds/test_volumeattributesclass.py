"""VolumeAttributesClasses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, creations, update_complaint

KIND = "VolumeAttributesClass"


test_rules = creations(KIND, cases=[
    ({}, None),
    ({"driverName": ""}, "driverName: Required value"),
    ({"driverName": "a b"}, 'driverName: Invalid value: "a b": name part must consist of'),
    ({"parameters": {}}, "parameters: Required value: must contain at least one key/value"),
    ({"parameters": {"k": "v" * 256 * 1024}},
     "parameters: Too long: may not be more than 262144 bytes"),
])  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [("driverName", "b"), ("parameters", {"iops": "200"})])
def test_driver_and_parameters_stay(field: str, value: Any) -> None:
    says = update_complaint(KIND, changed(KIND, {field: value}), changed(KIND))
    assert says == f"{field}: Forbidden: updates to {field} are forbidden."


def test_row() -> None:
    assert columns(KIND) == "Name DriverName Age |"
    assert row(KIND, {"driverName": "d"}) == ["x", "d", "90s"]
