"""StorageVersionMigrations."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, creations, update_complaint

KIND = "StorageVersionMigration"
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
TIME = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str = "True") -> Obj:
    return {
        "type": kind, "status": status, "lastTransitionTime": TIME, "reason": "R", "message": "m",
    }  # fmt: skip


def shown(kind: str, status: str = "True") -> str:
    return (
        f'{{"type":"{kind}","status":"{status}","lastTransitionTime":"{TIME}","reason":"R",'
        '"message":"m"}'
    )


test_creation = creations(KIND, is_exact=True, cases=[
    ({"spec.resource.resource": ""},
     "spec.resource.resource: Required value: resource is required to be set"),
    ({"spec.resource.resource": "1"},
     f'spec.resource.resource: Invalid value: "1": {LABEL}'),
    ({"spec.resource.group": "-"},
     'spec.resource.group: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of '
     "lower case alphanumeric characters, '-' or '.', and must start and end with an "
     "alphanumeric character (e.g. 'example.com', regex used for validation is "
     r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"),
])  # fmt: skip


def test_the_specification_never_changes() -> None:
    new = changed(KIND, {"spec.resource.resource": "pods"})
    assert update_complaint(KIND, new, changed(KIND)) == (
        'spec: Invalid value: {"Resource":{"group":"apps","resource":"pods"}}: field is immutable'
    )


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"resourceVersion": "12", "conditions": [condition("Succeeded")]}, None),
        ({}, {"resourceVersion": "01"},
         'status.resourceVersion: Invalid value: "01": resource version is not well formed: 01'),
        ({"resourceVersion": "1"}, {"resourceVersion": "2"},
         'status.resourceVersion: Invalid value: "2": field is immutable'),
        ({}, {"conditions": [condition("Running", "X")]},
         'status.conditions[0].status: Unsupported value: "X": supported values: "False", "True", '
         '"Unknown"'),
        ({}, {"conditions": [condition("Succeeded"), condition("Failed")]},
         f"status.conditions: Invalid value: [{shown('Succeeded')},{shown('Failed')}]: Both "
         "success and failed conditions cannot be true at the same time"),
        ({"conditions": [condition("Succeeded")]},
         {"conditions": [condition("Succeeded", "False")]},
         f"status.conditions: Invalid value: [{shown('Succeeded', 'False')}]: Success condition "
         "cannot be set to false once it is true"),
        ({"conditions": [condition("Failed")]}, {},
         "status.conditions: Invalid value: null: Failed condition cannot be set to false once it "
         "is true"),
    ],
)  # fmt: skip
def test_status(before: Obj, after: Obj, says: str | None) -> None:
    new, old = changed(KIND, {"status": after}), changed(KIND, {"status": before})
    assert update_complaint(KIND, new, old, "status") == says


@pytest.mark.parametrize(
    ("resource", "conditions", "cells"),
    [
        ({"resource": "pods"}, [], ["x", "pods", "Unknown"]),
        ({"group": "apps", "resource": "deployments"},
         [condition("Running"), condition("Failed", "False"), condition("Other")],
         ["x", "deployments.apps", "Running"]),
    ],
)  # fmt: skip
def test_row(resource: Obj, conditions: list[Obj], cells: list[Any]) -> None:
    fields = {"spec": {"resource": resource}, "status": {"conditions": conditions}}
    assert row(KIND, fields) == cells


def test_columns() -> None:
    assert columns(KIND) == "Name Resource Status |"
