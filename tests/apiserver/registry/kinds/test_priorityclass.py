"""PriorityClasses."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, rows
from tests.apiserver.registry.rules import creations, updates

test_creation = creations("PriorityClass", cases=[
    ({"metadata.name": "system-node-critical", "value": 2000001000}, None),
    ({"metadata.name": "system-node-critical", "value": 5},
     "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for "
     "system use only. error: value of system-node-critical PriorityClass must be 2000001000"),
])  # fmt: skip


test_update = updates("PriorityClass", cases=[
    ({}, {"value": 6}, "value: Forbidden: may not be changed in an update."),
    ({"preemptionPolicy": "Never"},
     {"preemptionPolicy": "PreemptLowerPriority"},
     'preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable'),
    ({}, {"description": "other"}, ""),
])  # fmt: skip


test_row = rows("PriorityClass", cases=[
    ({"value": 7, "globalDefault": True, "preemptionPolicy": "Never"},
     ["x", 7, True, "90s", "Never"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("PriorityClass") == "Name Value Global-Default Age PreemptionPolicy |"
