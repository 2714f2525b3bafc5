"""APIServices."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    changes,
    creations,
    decoded,
    update_complaint,
)

SERVICE = {"name": "s", "namespace": "n"}


test_creation = creations("APIService", cases=[
    ({}, None),
    ({"metadata.name": "x"},
     'metadata.name: Invalid value: "x": must be `spec.version+"."+spec.group`: '
     '"v1.example.com"'),
    ({"metadata.name": "v1.", "spec.group": ""}, None),
    ({"metadata.name": "v2.", "spec.group": "", "spec.version": "v2"},
     "spec.group: Required value: only v1 may have an empty group and it better be legacy "
     "kube"),
    ({"metadata.name": "v1.A", "spec.group": "A"},
     'spec.group: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of'),
    ({"metadata.name": "V.example.com", "spec.version": "V"},
     'spec.version: Invalid value: "V": a DNS-1035 label must consist of'),
    ({"spec.groupPriorityMinimum": 0},
     "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000"),
    ({"spec.groupPriorityMinimum": 20001},
     "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000"),
    ({"spec.versionPriority": 1001},
     "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"),
    ({"spec.caBundle": "YWE="},
     'spec.caBundle: Invalid value: "2 bytes": local APIServices may not have a caBundle'),
    ({"spec.insecureSkipTLSVerify": True},
     "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have "
     "insecureSkipTLSVerify"),
    ({"spec.service": {}},
     "[spec.service.namespace: Required value, spec.service.name: Required value]"),
    ({"spec.service": SERVICE | {"port": 65536}},
     "spec.service.port: Invalid value: 65536: port is not valid: must be between 1 and 65535, "
     "inclusive"),
    ({"spec.service": SERVICE, "spec.caBundle": "YWE=", "spec.insecureSkipTLSVerify": True},
     "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is "
     "present"),
])  # fmt: skip


test_update = changes("APIService", cases=[
    ({"spec.versionPriority": 3}, ""),
    ({"spec.versionPriority": -1},
     "spec.versionPriority: Invalid value: -1: must be positive and less than 1000"),
])  # fmt: skip


def test_a_status_has_known_values() -> None:
    conditions = [{"type": "Available", "status": "Maybe"}]
    new = changed("APIService", {"status": {"conditions": conditions}})
    assert update_complaint("APIService", new, changed("APIService"), "status") == (
        'status.conditions[0].status: Unsupported value: "Maybe": supported values: "True", '
        '"False", "Unknown"'
    )


def test_an_update_of_the_status_keeps_the_metadata() -> None:
    kind = KINDS["APIService"]
    sets = {"metadata.labels": {"a": "b"}, "spec.versionPriority": 2}
    new, old = decoded(kind, changed("APIService", sets)), decoded(kind, changed("APIService"))
    kind.strategy.parts["status"].prepare(new, old)
    assert new == old


def test_a_service_s_port_is_443() -> None:
    obj = decoded(KINDS["APIService"], changed("APIService", {"spec.service": SERVICE}))
    assert obj["spec"]["service"]["port"] == 443


def test_a_local_group_is_available_at_once() -> None:
    kind = KINDS["APIService"]
    created = "2026-01-01T00:00:00Z"
    local = decoded(kind, changed("APIService", {"metadata.creationTimestamp": created}))
    remote = decoded(kind, changed("APIService", {"spec.service": SERVICE}))
    for obj in (local, remote):
        kind.strategy.prepare_create(obj)
    assert remote["status"] == {}
    assert local["status"]["conditions"] == [
        {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": created,
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
    ]


@pytest.mark.parametrize(
    ("spec", "conditions", "cells"),
    [
        ({}, [], ["x", "Local", "Unknown", "90s"]),
        ({"service": SERVICE}, [{"type": "Available", "status": "True", "reason": "Passed"}],
         ["x", "n/s", "True", "90s"]),
        ({"service": SERVICE}, [{"type": "Available", "status": "False", "reason": "Missing"}],
         ["x", "n/s", "False (Missing)", "90s"]),
        ({}, [{"type": "Available", "status": "False"}], ["x", "Local", "False", "90s"]),
    ],
)  # fmt: skip
def test_row(spec: Obj, conditions: list[Obj], cells: list[Any]) -> None:
    assert row("APIService", {"spec": spec, "status": {"conditions": conditions}}) == cells


def test_columns() -> None:
    assert columns("APIService") == "Name Service Available Age |"
