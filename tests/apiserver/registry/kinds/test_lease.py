"""Leases."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import creations, updates

test_creation = creations("Lease", cases=[
    ({"spec.holderIdentity": ""},
     'spec.holderIdentity: Invalid value: "": must not be empty'),
])  # fmt: skip


test_update = updates("Lease", cases=[
    ({}, {"spec.leaseTransitions": -1},
     "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"),
])  # fmt: skip


test_row = rows("Lease", cases=[
    ({"spec": {"holderIdentity": "me"}}, ["x", "me", "90s"]),
])  # fmt: skip
