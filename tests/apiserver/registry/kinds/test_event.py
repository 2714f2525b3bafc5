"""Events: one stored object in two API groups, and its columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.kinds.event import EVENT, FIELD_ALIASES, from_core, to_core
from tests.apiserver.registry.kinds.rows import CREATED, columns, rows

CORE_FIELDS = {
    "metadata": {"name": "e"},
    "involvedObject": {"name": "p"},
    "message": "m",
    "reportingComponent": "c",
    "reportingInstance": "i",
    "source": {"component": "s"},
    "firstTimestamp": "t",
    "lastTimestamp": "t",
    "count": 3,
    "series": {"count": 2},
    "reason": "r",
    "type": "Normal",
    "related": {"name": "q"},
    "eventTime": "t",
    "action": "a",
}


def test_the_newer_group_has_its_own_names() -> None:
    shown = from_core(CORE_FIELDS)
    assert shown.keys() - CORE_FIELDS.keys() == {
        "regarding", "note", "reportingController", "deprecatedSource",
        "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount",
    }  # fmt: skip
    assert shown["note"] == "m"
    assert shown["reportingInstance"] == "i"


@given(st.sets(st.sampled_from(sorted(CORE_FIELDS))))
def test_there_and_back_nothing_is_lost(fields: set[str]) -> None:
    event = {field: CORE_FIELDS[field] for field in fields}
    assert to_core(from_core(event)) == event


def test_every_alias_leads_to_a_field_one_can_select_by() -> None:
    labels = {field.label for field in EVENT.selectable}
    assert set(FIELD_ALIASES.values()) <= labels


test_row = rows("Event", cases=[
    ({"type": "Normal", "reason": "R", "message": "m\n", "lastTimestamp": CREATED,
               "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
               "source": {"component": "c", "host": "h"}, "firstTimestamp": CREATED,
               "count": 4},
     ["90s", "Normal", "R", "pod/p", "f", "c, h", "m", "90s", 4, "x"]),
    ({"eventTime": CREATED, "reportingComponent": "rc", "involvedObject": {}},
     ["90s", "", "", "", "", "rc", "", "90s", 1, "x"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("Event") == (
        "Last_Seen Type Reason Object Message | Subobject Source First_Seen Count Name"
    )
