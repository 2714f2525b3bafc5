"""Rules, columns and defaults that are declared in rows."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns import cells
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    column,
    containers_of,
    marked_name,
    printer,
    selector_column,
)
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    Row,
    Unique,
    always,
    always_text,
    at_least,
    each,
    each_field,
    follows,
    immutable,
    in_turn,
    most_bytes,
    most_items,
    not_above,
    not_negative,
    one_of,
    part,
    present,
    required,
    required_as,
    required_one_of,
    satisfies,
    unique,
    unless_empty,
    update,
    validator,
    whole,
    without_path,
)
from tests.apiserver.registry.kinds.rows import CREATED, NOW

NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"


def lines(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def shown(value: object, path: str) -> tuple[FieldError, ...]:
    """A check that reports every value it is given."""
    return (FieldError.invalid(path, value),)


def size_errors(obj: dict[str, Any]) -> list[FieldError]:
    """A rule that names its path itself."""
    return [FieldError.too_many("spec", len(obj), 0)]


@pytest.mark.parametrize(
    ("row", "obj", "errors"),
    [
        (("a", required), {}, ["a: Required value"]),
        (("a", required), {"a": ""}, ["a: Required value"]),
        (("a", required), {"a": "x"}, []),
        (("a.b", required), {}, ["a.b: Required value"]),
        (("a?.b", required), {}, []),
        (("a?.b", required), {"a": {}}, ["a.b: Required value"]),
        (("a[*].b", required), {}, []),
        (("a[*].b", required), {"a": [{"b": 1}, {}]}, ["a[1].b: Required value"]),
        (("a", required_as("say why")), {}, ["a: Required value: say why"]),
        (("a", always(shown)), {}, ["a: Invalid value: null"]),
        (("a", shown), {}, []),
        (("a", shown), {"a": 0}, ["a: Invalid value: 0"]),
        (("a.b.c", shown), {"a": {"b": {"c": 1}}}, ["a.b.c: Invalid value: 1"]),
        (("a[*]", shown), {"a": ["x"]}, ['a[0]: Invalid value: "x"']),
        (("a[*]", shown), {"a": {"k": "x"}}, ['a[k]: Invalid value: "x"']),
        (("a[*].b[*].c", shown), {"a": [{"b": [{"c": 1}]}]}, ["a[0].b[0].c: Invalid value: 1"]),
        (("a", at_least(1, "be 1")), {"a": 0}, ["a: Invalid value: 0: be 1"]),
        (("a", at_least(1, "be 1")), {"a": 1}, []),
        (("a", not_negative), {"a": -1}, [f"a: {NEGATIVE}"]),
        (("a", satisfies(bool, "be set")), {"a": ""}, ['a: Invalid value: "": be set']),
        (("a", most_bytes(1)), {"a": "é"}, ["a: Too long: may not be more than 1 bytes"]),
        (("a", most_bytes(1, "cut it")), {"a": "xy"}, ['a: Invalid value: "xy": cut it']),
        (("a", most_bytes(2)), {"a": "é"}, []),
        (("a", most_items(1)), {"a": [1, 2]}, ["a: Too many: 2: must have at most 1 items"]),
        (("a", one_of("x", "y")), {"a": "z"},
         ['a: Unsupported value: "z": supported values: "x", "y"']),
        (("a", one_of("x", "y")), {"a": ""},
         ['a: Unsupported value: "": supported values: "x", "y"']),
        (("a", required_one_of("x")), {"a": ""}, ["a: Required value"]),
        (("a", required_one_of("x")), {}, ["a: Required value"]),
        (("a", required_one_of("x")), {"a": "z"},
         ['a: Unsupported value: "z": supported values: "x"']),
        (("a", always_text(one_of("x"))), {},
         ['a: Unsupported value: "": supported values: "x"']),
        (("a", present), {}, ["a: Required value"]),
        (("a", present), {"a": ""}, []),
        (("a", unless_empty(one_of("x"))), {"a": ""}, []),
        (("a", unless_empty(one_of("x"))), {"a": "z"},
         ['a: Unsupported value: "z": supported values: "x"']),
        (("a", follows(lambda text: [f"not {text}", "nor else"])), {"a": "x"},
         ['a: Invalid value: "x": not x', 'a: Invalid value: "x": nor else']),
        (("a", each(one_of("x"))), {"a": ["x", "z"]},
         ['a: Unsupported value: "z": supported values: "x"']),
        (("a", not_above("most", "n", "m")), {"a": {"most": 1, "n": 2}},
         ["a.n: Invalid value: 2: cannot be greater than a.most"]),
        (("a", not_above("most", "n", shown="the most")), {"a": {"n": 1}},
         ["a.n: Invalid value: 1: cannot be greater than the most"]),
        (("a", not_above("most", "n")), {"a": {"most": -1}},
         ["a.n: Invalid value: 0: cannot be greater than a.most"]),
        (("spec", whole(size_errors)), {}, ["spec: Too many: 0: must have at most 0 items"]),
        (("", whole(size_errors)), {"a": 1}, ["spec: Too many: 1: must have at most 0 items"]),
        (("spec", without_path(size_errors)), {}, []),
        (("a[*]", unique), {"a": ["x", "y", "x", "x"]},
         ['a[2]: Duplicate value: "x"', 'a[3]: Duplicate value: "x"']),
        (("a[*].n", unique), {"a": [{"n": "x"}, {"n": "x"}]}, ['a[1].n: Duplicate value: "x"']),
        (("a[*].n", unique), {"a": [{}, {}]}, ['a[1].n: Duplicate value: ""']),
        (("a[*].b[*]", unique), {"a": [{"b": ["x"]}, {"b": ["x"]}]}, []),
        (("a[*]", Unique(len)), {"a": ["x", "y"]}, ["a[1]: Duplicate value: 1"]),
    ],
)  # fmt: skip
def test_a_row(row: Row, obj: dict[str, Any], errors: list[str]) -> None:
    assert lines(validator(row)(obj)) == errors


def test_errors_come_in_the_order_of_the_rows() -> None:
    validate = validator(("b", shown), ("a", required, shown), ("b", required))
    assert lines(validate({"a": "", "b": ""})) == [
        'b: Invalid value: ""',
        "a: Required value",
        'a: Invalid value: ""',
        "b: Required value",
    ]


def test_consecutive_rows_below_a_list_are_checked_item_by_item() -> None:
    validate = validator(
        ("a[*].n", required), ("a[*].m", not_negative), ("b", required), ("a[*].k", required)
    )
    assert lines(validate({"a": [{"m": -1}, {}]})) == [
        "a[0].n: Required value",
        f"a[0].m: {NEGATIVE}",
        "a[1].n: Required value",
        "b: Required value",
        "a[0].k: Required value",
        "a[1].k: Required value",
    ]


def test_two_checks_of_uniqueness_do_not_mix() -> None:
    validate = validator(("a[*].n", unique), ("a[*].m", Unique(str)))
    assert lines(validate({"a": [{"n": "x", "m": "y"}, {"n": "y", "m": "x"}]})) == []


def test_a_validator_remembers_nothing() -> None:
    validate = validator(("a[*]", unique))
    assert [lines(validate({"a": ["x"]})) for _ in range(2)] == [[], []]


@pytest.mark.parametrize(
    ("row", "value", "errors"),
    [
        (("a", required), {}, ["at.a: Required value"]),
        (("a.b", shown), {"a": {"b": 1}}, ["at.a.b: Invalid value: 1"]),
        (("", shown), 1, ["at: Invalid value: 1"]),
        (("[*]", shown), ["x"], ['at[0]: Invalid value: "x"']),
        (("[*].n", required), [{"n": 1}, {}], ["at[1].n: Required value"]),
        (("[*].n", required), None, []),
    ],
)
def test_a_row_of_a_part(row: Row, value: object, errors: list[str]) -> None:
    assert lines(part(row)(value, "at")) == errors


def test_fields_with_the_same_checks() -> None:
    assert each_field("s", ("a", "b"), not_negative) == (
        ("s.a", not_negative),
        ("s.b", not_negative),
    )


@pytest.mark.parametrize(
    ("new", "old", "errors"),
    [
        ({"a": 1, "s": {"t": {"b": 2}}}, {"a": 1, "s": {"t": {"b": 2}}}, []),
        ({"a": 1}, {"a": 2}, ["a: Invalid value: 1: field is immutable"]),
        ({}, {"a": 2}, ["a: Invalid value: null: field is immutable"]),
        ({"s": {"t": {"b": 1}}}, {}, ["s.t.b: Invalid value: 1: field is immutable"]),
        ({"s": {}}, {}, []),
    ],
)
def test_immutable_fields(new: dict[str, Any], old: dict[str, Any], errors: list[str]) -> None:
    assert lines(immutable("a", "s.t.b")(new, old)) == errors


def test_an_absent_text_counts_as_empty() -> None:
    compare = immutable("a", absent="")
    assert lines(compare({}, {"a": ""})) == []
    assert lines(compare({}, {"a": "x"})) == ['a: Invalid value: "": field is immutable']


def test_the_places_of_comparisons() -> None:
    validate = update(validator(("b", required)), before=immutable("a"), after=immutable("c"))
    assert [error.field for error in validate({}, {"a": 1, "c": 1})] == ["a", "b", "c"]
    assert [error.field for error in update(validator(("b", required)))({}, {})] == ["b"]
    both = in_turn(immutable("a"), immutable("c"))
    assert [error.field for error in both({}, {"a": 1, "c": 1})] == ["a", "c"]


@pytest.mark.parametrize(
    ("row", "obj", "filled"),
    [
        (("a", 1), {}, {"a": 1}),
        (("a", 1), {"a": 0}, {"a": 0}),
        (("a", False), {}, {"a": False}),
        (("s.a", 1), {}, {"s": {"a": 1}}),
        (("s?.a", 1), {}, {}),
        (("s?.a", 1), {"s": {}}, {"s": {"a": 1}}),
        (("l[*].a", 1), {}, {}),
        (("l[*].a", 1), {"l": [{}, {"a": 2}]}, {"l": [{"a": 1}, {"a": 2}]}),
        (("l[*].m[*].a", 1), {"l": [{"m": [{}]}]}, {"l": [{"m": [{"a": 1}]}]}),
        (("s.t", lambda part: part.update(a=1)), {}, {"s": {"t": {"a": 1}}}),
        (("s?", lambda part: part.update(a=1)), {}, {}),
        (("s?", lambda part: part.update(a=1)), {"s": {}}, {"s": {"a": 1}}),
        (("l[*]", lambda part: part.update(a=1)), {"l": [{}]}, {"l": [{"a": 1}]}),
    ],
)
def test_a_default(row: tuple[str, Any], obj: dict[str, Any], filled: dict[str, Any]) -> None:
    obj = copy.deepcopy(obj)
    defaults(row)(obj)
    assert obj == filled


def test_objects_do_not_share_a_default() -> None:
    fill = defaults(("a", ["x"]))
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    fill(first)
    fill(second)
    first["a"].append("y")
    assert second == {"a": ["x"]}


POD = {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}]}
FULL = {
    "metadata": {"name": "n", "creationTimestamp": CREATED},
    "spec": {"count": 2, "text": "t", "flag": True, "list": [1, 2],
             "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": POD}},
}  # fmt: skip
EMPTY: dict[str, Any] = {"metadata": {}}


@pytest.mark.parametrize(
    ("declared", "full", "empty"),
    [
        (NAME, "n", ""),
        (AGE, "90s", "<unknown>"),
        (column("C", "spec.count", "integer"), 2, 0),
        (column("C", "spec.text"), "t", ""),
        (column("C", "spec.text", absent="<none>"), "t", "<none>"),
        (column("C", "spec.flag", "boolean"), True, False),
        (column("C", "spec.flag", "boolean", absent=True), True, True),
        (column("C", "spec.list", "integer", show=len), 2, 0),
        (column("C", lambda obj: len(obj)), 2, 1),
        (selector_column("t"), "a=b", "<none>"),
        (selector_column("t", lambda selector: str(selector and 1)), "1", "None"),
        (containers_of()[0], "a,b", ""),
        (containers_of()[1], "i:1,j", ""),
        (marked_name(lambda obj: "spec" in obj), "n (default)", ""),
    ],
)
def test_a_column(declared: Any, full: object, empty: object) -> None:
    made = printer(declared)
    assert (made.cells(FULL, NOW), made.cells(EMPTY, NOW)) == ([full], [empty])


def test_where_a_column_is_documented() -> None:
    assert column("C", "status.ready", of="T").column.documented_by == "T.ready"
    assert column("C", len, documented_by="T.x").column.documented_by == "T.x"
    assert selector_column("T").column.documented_by == "T.selector"


def test_a_printer() -> None:
    wide = column("C", "spec.text", priority=1, format_="name", description="what it is")
    made = printer(
        NAME, wide, AGE, *containers_of(priority=0), conditions=lambda _: [{"type": "A"}]
    )
    assert made.columns[:3] == (cells.NAME, wide.column, cells.AGE)
    assert [shown.priority for shown in made.columns] == [0, 1, 0, 0, 0]
    assert made.cells(FULL, NOW) == ["n", "t", "90s", "a,b", "i:1,j"]
    assert made.conditions is not None
