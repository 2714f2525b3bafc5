"""Leases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import row
from tests.apiserver.registry.rules import changed, complaint, update_complaint


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"spec.holderIdentity": ""},
         'spec.holderIdentity: Invalid value: "": must not be empty'),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str) -> None:
    error = complaint("Lease", changed("Lease", sets))
    assert error is not None
    assert says in error.partition(" is invalid: ")[2]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"spec.leaseTransitions": -1},
         "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    error = update_complaint("Lease", changed("Lease", after), changed("Lease", before))
    assert (error or "") == says


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"spec": {"holderIdentity": "me"}}, ["x", "me", "90s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("Lease", fields) == cells
