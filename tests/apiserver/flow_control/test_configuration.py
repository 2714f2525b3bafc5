"""What the objects of flow control amount to: broken ones are left out, mandatory ones fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.flow_control import FlowSchema, PriorityLevelConfiguration
from moorage.apiserver.flow_control.configuration import digest, usable_level
from tests.apiserver.flow_control.requests import defaults, level, schema

NOTHING = digest((), ())


def test_without_objects_there_are_the_mandatory_ones() -> None:
    assert [one.name for one in NOTHING.schemas] == ["exempt", "catch-all"]
    assert set(NOTHING.levels) == {"exempt", "catch-all"}
    assert NOTHING.levels["exempt"].is_exempt
    assert NOTHING.levels["catch-all"].queuing is None


def test_schemas_are_in_the_order_of_precedence_then_name() -> None:
    names = [one.name for one in defaults(schema("b"), schema("a")).schemas]
    assert names == [
        "exempt", "probes", "system-leader-election", "system-node-high", "system-nodes",
        "kube-controller-manager", "kube-scheduler", "kube-system-service-accounts", "a", "b",
        "service-accounts", "global-default", "catch-all",
    ]  # fmt: skip


def test_a_schema_without_its_level_is_left_out() -> None:
    dangling = schema("x", priorityLevelConfiguration={"name": "none"})
    assert "x" not in [one.name for one in defaults(dangling).schemas]
    assert "x" in [one.name for one in defaults(dangling, level("none")).schemas]


def test_the_mandatory_objects_cannot_be_changed() -> None:
    hostile = [
        schema("exempt", matchingPrecedence=10000, rules=[]),
        schema("catch-all", priorityLevelConfiguration={"name": "none"}),
    ]
    levels = [level("exempt"), level("catch-all", nominalConcurrencyShares=0)]
    digested = digest(levels, hostile)
    assert digested.schemas == NOTHING.schemas
    assert digested.levels == NOTHING.levels


def test_users_choose_the_shares_of_the_exempt_level_alone() -> None:
    spec = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 7, "lendablePercent": 200}}
    obj = {"metadata": {"name": "exempt", "uid": "u"}, "spec": spec}
    found = usable_level(msgspec.convert(obj, PriorityLevelConfiguration))
    expected = replace(NOTHING.levels["exempt"], uid="u", shares=7, lendable_percent=100)
    assert found == expected


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"type": "Exempt", "exempt": {}},
        {"type": "Limited"},
        {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}},
        {"type": "Limited", "limited": {"limitResponse": {"type": "Reject", "queuing": {}}}},
        {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}},
        {"type": "Limited", "limited": {"limitResponse": {
            "type": "Queue", "queuing": {"queues": 4, "handSize": 5}}}},
        {"type": "Limited", "limited": {"limitResponse": {
            "type": "Queue", "queuing": {"queues": 10_000_000, "handSize": 64}}}},
        {"type": "Limited", "exempt": {}, "limited": {"limitResponse": {"type": "Reject"}}},
    ],
)  # fmt: skip
def test_a_broken_level_is_left_out(spec: dict[str, Any]) -> None:
    obj = {"metadata": {"name": "x"}, "spec": spec}
    broken = msgspec.convert(obj, PriorityLevelConfiguration)
    assert usable_level(broken) is None
    of_it = schema("y", priorityLevelConfiguration={"name": "x"})
    assert digest((broken,), (of_it,)) == NOTHING


_INTS = st.integers(-(2**31), 2**31 - 1)


@given(
    st.sampled_from(["exempt", "catch-all", "x"]),
    st.sampled_from(["Exempt", "Limited", "", "x"]),
    st.sampled_from(["Queue", "Reject", ""]),
    st.none() | st.fixed_dictionaries(dict.fromkeys(("queues", "handSize"), _INTS)),
    st.none() | st.fixed_dictionaries({"nominalConcurrencyShares": _INTS}),
    _INTS, _INTS, _INTS, _INTS,
)  # fmt: skip
def test_no_object_breaks_the_configuration(
    name: str, type_: str, response: str, queuing: Any, exempt: Any,
    shares: int, lendable: int, borrowing: int, precedence: int,
) -> None:  # fmt: skip
    answer = {"type": response, **({"queuing": queuing} if queuing else {})}
    limited = {"nominalConcurrencyShares": shares, "lendablePercent": lendable,
               "borrowingLimitPercent": borrowing, "limitResponse": answer}  # fmt: skip
    spec = {"type": type_, "limited": limited, **({"exempt": exempt} if exempt else {})}
    obj = {"metadata": {"name": name}, "spec": spec}
    found = digest(
        (msgspec.convert(obj, PriorityLevelConfiguration),),
        (schema(name, matchingPrecedence=precedence, priorityLevelConfiguration={"name": "x"}),),
    )
    assert {"exempt", "catch-all"} <= {one.name for one in found.schemas}
    for one in found.levels.values():
        assert one.is_exempt == (one.name == "exempt")
        assert one.shares >= 0
        assert 0 <= one.lendable_percent <= 100
    assert isinstance(schema("x"), FlowSchema)
