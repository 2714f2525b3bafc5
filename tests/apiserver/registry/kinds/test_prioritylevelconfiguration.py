"""PriorityLevelConfigurations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "PriorityLevelConfiguration"
LIMITED = "spec.limited"
QUEUE = {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}}
QUEUING = f"{LIMITED}.limitResponse.queuing"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"metadata.annotations": {
            "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}},
         "metadata.annotations: Forbidden: annotation "
         "'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden"),
        ({"metadata.name": "exempt"},
         "[spec.type: Invalid value: \"Limited\": must be 'Exempt' if and only if `name` is "
         "'exempt', spec: Invalid value: "
         '{"Type":"Limited","Limited":{"NominalConcurrencyShares":30,"LimitResponse":{"Type":'
         '"Reject","Queuing":null},"LendablePercent":0,"BorrowingLimitPercent":null},"Exempt":null}'
         ": spec of 'exempt' except the 'spec.exempt' field must equal the fixed value]"),
        ({"metadata.name": "exempt", "spec": {"type": "Exempt", "exempt": {"lendablePercent": -1}}},
         "spec.exempt.lendablePercent: Invalid value: -1: must be between 0 and 100, inclusive"),
        ({"spec": {"type": "X"}},
         'spec.type: Unsupported value: "X": supported values: "Exempt", "Limited"'),
        ({"spec": {"type": ""}}, "spec.type: Required value"),
        ({"spec": {"type": "Limited"}}, "spec.limited: Required value"),
        ({"spec.exempt": {}}, "spec.exempt: Forbidden"),
        ({f"{LIMITED}.nominalConcurrencyShares": -1},
         "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative "
         "integer"),
        ({f"{LIMITED}.lendablePercent": 101},
         "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"),
        ({f"{LIMITED}.borrowingLimitPercent": -1},
         "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a "
         "non-negative integer"),
        ({f"{LIMITED}.limitResponse.type": "X"},
         'spec.limited.limitResponse.type: Unsupported value: "X": supported values: "Queue", '
         '"Reject"'),
        ({f"{LIMITED}.limitResponse": {"type": ""}},
         "spec.limited.limitResponse.type: Required value"),
        ({f"{LIMITED}.limitResponse": {"type": "Queue"}},
         "spec.limited.limitResponse.queuing: Required value"),
        ({f"{LIMITED}.limitResponse": QUEUE | {"type": "Reject"}},
         "spec.limited.limitResponse.queuing: Forbidden"),
        ({f"{LIMITED}.limitResponse": QUEUE, f"{QUEUING}.queueLengthLimit": -1},
         "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be "
         "positive"),
        ({f"{LIMITED}.limitResponse": QUEUE, f"{QUEUING}.queues": 10000001},
         "[spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater "
         "than 10000000, spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required "
         "entropy bits of deckSize 10000001 and handSize 8 should not be greater than 60]"),
        ({f"{LIMITED}.limitResponse": QUEUE, f"{QUEUING}.queues": -1},
         "[spec.limited.limitResponse.queuing.queues: Invalid value: -1: must be positive, "
         "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater "
         "than queues (-1)]"),
        ({f"{LIMITED}.limitResponse": QUEUE, f"{QUEUING}.handSize": -1},
         "spec.limited.limitResponse.queuing.handSize: Invalid value: -1: must be positive"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str) -> None:
    error = complaint(KIND, changed(KIND, sets))
    assert error is not None
    assert error.partition(" is invalid: ")[2] == says
    assert update_complaint(KIND, changed(KIND, sets), changed(KIND, sets)) == says


def test_the_last_level_is_fixed() -> None:
    sets = {"metadata.name": "catch-all", f"{LIMITED}.nominalConcurrencyShares": 5}
    assert complaint(KIND, changed(KIND, sets)) is None
    error = complaint(KIND, changed(KIND, sets | {f"{LIMITED}.lendablePercent": 1}))
    assert error is not None
    assert error.endswith("spec of 'catch-all' must equal the fixed value")


def test_defaults() -> None:
    response = {"type": "Queue", "queuing": {"handSize": 0}}
    sets = {f"{LIMITED}.limitResponse": response, "spec.exempt": {}}
    assert decoded(KINDS[KIND], changed(KIND, sets))["spec"] == {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 30, "lendablePercent": 0, "limitResponse": QUEUE,
        },
        "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "cells"),
    [
        ({"type": "Exempt"}, ["x", "Exempt", *4 * ["<none>"], "90s"]),
        ({"type": "Limited", "limited": {"nominalConcurrencyShares": 5}},
         ["x", "Limited", 5, *3 * ["<none>"], "90s"]),
        ({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": QUEUE}},
         ["x", "Limited", 5, 64, 8, 50, "90s"]),
    ],
)  # fmt: skip
def test_row(spec: dict[str, Any], cells: list[Any]) -> None:
    assert row(KIND, {"spec": spec}) == cells


def test_columns() -> None:
    assert columns(KIND) == (
        "Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age |"
    )
