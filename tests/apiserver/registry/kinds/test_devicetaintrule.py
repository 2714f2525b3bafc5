"""DeviceTaintRules."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import CREATED, columns, row
from tests.apiserver.registry.rules import KINDS, changed, creations, decoded, update_complaint

KIND = "DeviceTaintRule"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
NO_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
EFFECTS = 'supported values: "NoExecute", "NoSchedule", "None"'
CONDITION = {
    "status": "True",
    "reason": "R",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


test_creation = creations(KIND, is_exact=True, in_updates=True, cases=[
    ({}, None),
    ({"spec.deviceSelector": {"driver": "d", "pool": "p/q", "device": "x"}}, None),
    ({"spec.deviceSelector": {"driver": "", "pool": "", "device": "X"}},
     "[spec.deviceSelector.driver: Required value, spec.deviceSelector.pool: Required value, "
     f'spec.deviceSelector.device: Invalid value: "X": {LABEL}]'),
    ({"spec.taint.key": ""},
     '[spec.taint.key: Invalid value: "": name part must be non-empty, spec.taint.key: Invalid '
     f'value: "": {NO_KEY}]'),
    ({"spec.taint.value": "a b"}, f'spec.taint.value: Invalid value: "a b": {VALUE}'),
    ({"spec.taint.effect": "None"}, None),
    ({"spec.taint.effect": ""}, "spec.taint.effect: Required value"),
    ({"spec.taint.effect": "X"}, f'spec.taint.effect: Unsupported value: "X": {EFFECTS}'),
])  # fmt: skip


def test_an_effect_that_does_not_change_stays_legal() -> None:
    old = changed(KIND, {"spec.taint.effect": "X"})
    assert update_complaint(KIND, old, old) is None


def test_the_taint_of_a_new_rule_is_dated() -> None:
    kind = KINDS[KIND]
    obj = decoded(kind, changed(KIND, {"metadata.creationTimestamp": CREATED}))
    kind.strategy.prepare_create(obj)
    assert obj["spec"]["taint"]["timeAdded"] == CREATED


def test_status() -> None:
    conditions = [{"type": f"t{index}", **CONDITION} for index in range(9)]
    new = changed(KIND, {"status": {"conditions": [*conditions[:8], {**conditions[0]}]}})
    assert update_complaint(KIND, new, changed(KIND), "status") == (
        '[status.conditions[8]: Duplicate value: "t0", status.conditions: Too many: 9: must have '
        "at most 8 items]"
    )
    new = changed(KIND, {"status": {"conditions": conditions[:8]}, "spec.taint.key": "a b"})
    assert update_complaint(KIND, new, changed(KIND), "status") is None


def test_row() -> None:
    taint = {"key": "k", "value": "v", "effect": "None"}
    assert row(KIND, {"spec": {"taint": taint}}) == ["x", "k", "v", "None", "", "90s"]
    assert row(KIND, {"spec": {"taint": {**taint, "timeAdded": CREATED}}})[4] == "90s"
    assert row(KIND, {}) == ["x", "", "", "", "", "90s"]


def test_columns() -> None:
    assert columns(KIND) == "Name Key Value Effect TimeAdded Age |"
