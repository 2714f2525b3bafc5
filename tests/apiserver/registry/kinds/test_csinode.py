"""CSINodes."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, creations, update_complaint

KIND = "CSINode"
DRIVER = "spec.drivers[0]"
OTHER = {"name": "other.example.com", "nodeID": "i"}


test_rules = creations(KIND, cases=[
    ({}, None),
    ({"spec.drivers": []}, None),
    ({f"{DRIVER}.name": ""}, f"{DRIVER}.name: Required value"),
    ({f"{DRIVER}.name": "Disk.Example.COM"}, None),
    ({f"{DRIVER}.name": "a" * 64},
     f"{DRIVER}.name: Too long: may not be more than 63 bytes"),
    ({f"{DRIVER}.name": "a_b"},
     f'{DRIVER}.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain must'),
    ({f"{DRIVER}.nodeID": ""}, f"{DRIVER}.nodeID: Required value"),
    ({f"{DRIVER}.nodeID": "i" * 256}, None),
    ({f"{DRIVER}.nodeID": "i" * 257}, f'{DRIVER}.nodeID: Invalid value: "{"i" * 100}'),
    ({f"{DRIVER}.allocatable": {"count": 0}}, None),
    ({f"{DRIVER}.allocatable": {"count": -1}},
     f"{DRIVER}.allocatable.count: Invalid value: -1: must be greater than or equal to 0"),
    ({f"{DRIVER}.topologyKeys": ["a", "a"]}, f'{DRIVER}: Duplicate value: "a"'),
    ({f"{DRIVER}.topologyKeys": ["a b"]}, f'{DRIVER}: Invalid value: "a b": name part must'),
    ({"spec.drivers": [OTHER, OTHER]},
     'spec.drivers[1].name: Duplicate value: "other.example.com"'),
])  # fmt: skip


def test_only_the_limit_of_a_driver_changes() -> None:
    old = changed(KIND, {f"{DRIVER}.allocatable": {"count": 5}})
    new = changed(KIND, {f"{DRIVER}.allocatable": {"count": 6}})
    assert update_complaint(KIND, new, old) is None
    new = changed(KIND, {f"{DRIVER}.nodeID": "i-2"})
    assert update_complaint(KIND, new, old) == (
        'spec.drivers: Invalid value: {"Name":"disk.example.com","NodeID":"i-2",'
        '"TopologyKeys":null,"Allocatable":null}: field is immutable'
    )


def test_drivers_come_and_go() -> None:
    assert update_complaint(KIND, changed(KIND, {"spec.drivers": [OTHER]}), changed(KIND)) is None


def test_row() -> None:
    assert columns(KIND) == "Name Drivers Age |"
    assert row(KIND, {}) == ["x", 0, "90s"]
    assert row(KIND, {"spec": {"drivers": [OTHER]}}) == ["x", 1, "90s"]
