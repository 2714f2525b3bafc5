"""ServiceCIDRs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, complaint, update_complaint

KIND = "ServiceCIDR"
CIDRS = "spec.cidrs"
V4, V6 = "10.0.0.0/24", "2001:db8::/64"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({CIDRS: [V6, V4]}, None),
        ({CIDRS: []}, f"{CIDRS}: Required value: at least one CIDR required"),
        ({CIDRS: [V4, V6, V4]},
         f'{CIDRS}: Invalid value: {{"CIDRs":["{V4}","{V6}","{V4}"]}}: may only hold up to 2 '
         "values"),
        ({CIDRS: [V4, "10.1.0.0/24"]},
         f'{CIDRS}: Invalid value: ["{V4}","10.1.0.0/24"]: may specify no more than one IP for '
         "each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"),
        ({CIDRS: ["10.0.0.1/24"]},
         f'{CIDRS}[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix'),
        ({CIDRS: [V4, "2001:DB8::/64"]},
         f'{CIDRS}[1]: Invalid value: "2001:DB8::/64": must be in canonical form ("{V6}")'),
        ({CIDRS: ["x"]}, f'{CIDRS}[0]: Invalid value: "x": must be a valid CIDR value'),
        ({"metadata.name": "A"}, 'metadata.name: Invalid value: "A": a lowercase RFC 1123'),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    assert refusal is None if says is None else f" is invalid: {says}" in str(refusal)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ([V4], [V4], None),
        ([V4], [V4, V6], None),
        ([V4], ["10.1.0.0/24"], f'{CIDRS}[0]: Invalid value: "10.1.0.0/24": field is immutable'),
        ([V4], [V6, V4], f'{CIDRS}[0]: Invalid value: "{V6}": field is immutable'),
        ([V4], [V4, V4], f'{CIDRS}: Invalid value: ["{V4}","{V4}"]: may specify no more than one'),
        ([V4, V6], [V4], f'{CIDRS}: Invalid value: ["{V4}"]: field is immutable'),
    ],
)
def test_a_second_network_may_be_added(old: list[str], new: list[str], says: str | None) -> None:
    refusal = update_complaint(KIND, changed(KIND, {CIDRS: new}), changed(KIND, {CIDRS: old}))
    assert refusal is None if says is None else str(refusal).startswith(says)


def test_row() -> None:
    assert columns(KIND) == "Name CIDRs Age |"
    assert row(KIND, {}) == ["x", "", "90s"]
    assert row(KIND, {"spec": {"cidrs": [V4, V6]}}) == ["x", f"{V4},{V6}", "90s"]
