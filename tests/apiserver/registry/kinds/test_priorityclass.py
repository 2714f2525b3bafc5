"""PriorityClasses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, complaint, update_complaint


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"metadata.name": "system-node-critical", "value": 2000001000}, None),
        ({"metadata.name": "system-node-critical", "value": 5},
         "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for "
         "system use only. error: value of system-node-critical PriorityClass must be 2000001000"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str | None) -> None:
    error = complaint("PriorityClass", changed("PriorityClass", sets))
    if says is None:
        assert error is None
    else:
        assert error is not None
        assert says in error.partition(" is invalid: ")[2]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"value": 6}, "value: Forbidden: may not be changed in an update."),
        ({"preemptionPolicy": "Never"},
         {"preemptionPolicy": "PreemptLowerPriority"},
         'preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable'),
        ({}, {"description": "other"}, ""),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    error = update_complaint(
        "PriorityClass", changed("PriorityClass", after), changed("PriorityClass", before)
    )
    assert (error or "") == says


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"value": 7, "globalDefault": True, "preemptionPolicy": "Never"},
         ["x", 7, True, "90s", "Never"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("PriorityClass", fields) == cells


def test_columns() -> None:
    assert columns("PriorityClass") == "Name Value Global-Default Age PreemptionPolicy |"
