"""Conditions of a status."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.conditions import condition_errors

LEGAL = {
    "type": "Ready", "status": "True", "reason": "Done", "message": "m",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    "used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, []),
        ({"type": ""}, ["c[0].type: Required value: is required"]),
        ({"status": ""}, ["c[0].status: Required value"]),
        ({"status": "Yes"},
         ['c[0].status: Unsupported value: "Yes": supported values: "False", "True", "Unknown"']),
        ({"observedGeneration": -1},
         ["c[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero"]),
        ({"lastTransitionTime": None}, ["c[0].lastTransitionTime: Required value"]),
        ({"reason": ""}, ["c[0].reason: Required value"]),
        ({"reason": "a b"}, [f'c[0].reason: Invalid value: "a b": {REASON}']),
        ({"reason": "a" * 1025}, ["c[0].reason: Too long: may not be more than 1024 bytes"]),
        ({"message": "a" * 32769}, ["c[0].message: Too long: may not be more than 32768 bytes"]),
    ],
)  # fmt: skip
def test_condition(fields: Obj, says: list[str]) -> None:
    assert [str(error) for error in condition_errors([LEGAL | fields], "c")] == says


def test_the_types_of_conditions_are_unique() -> None:
    (error,) = condition_errors([LEGAL, LEGAL], "c")
    assert str(error) == 'c[1]: Duplicate value: "Ready"'
