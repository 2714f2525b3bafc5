from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api import fields, labels

LABELS = {"app": "web", "tier": "front", "weight": "5"}

MATCHES = {
    "": True,
    "app=web": True,
    "app==web": True,
    "app!=web": False,
    "other!=x": True,
    "app in (web, api)": True,
    "app notin (api)": True,
    "other notin (x)": True,
    "other in (x)": False,
    "app in ()": False,
    "app": True,
    "!app": False,
    "!other": True,
    "weight>4": True,
    "weight<5": False,
    "app>1": False,
    "app=web,tier=front": True,
    "app=web , tier=back": False,
    "example.com/x=": False,
    "app=": False,
    "weight<6": True,
    "weight>5": False,
    "other>1": False,
    "other<1": False,
    "app in (api, web)": True,
    "app notin (api, web)": False,
    "app notin (web)": False,
    "app,other": False,
    "other,app": False,
    "tier!=front,app=web": False,
}


@pytest.mark.parametrize(("text", "expected"), MATCHES.items())
def test_label_selectors_match_as_kubernetes_does(text: str, expected: bool) -> None:
    assert labels.parse(text).matches(LABELS) is expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in", r"expected: '\('"),
        ("a in (x", r"expected: ',' or '\)'"),
        ("a=b,", "expected: identifier after ','"),
        ("a>x", "the value must be an integer"),
        ("-a=b", "name part must consist of alphanumeric"),
        ("a=b c", "found 'c'"),
        ("!", "expected: identifier"),
        ("a in (x y)", r"found 'y', expected: ',', or '\)'"),
        ("a in x", r"found 'x' expected: '\('"),
        ("a in", r"found '' expected: '\('"),
        ("a=(", r"found '\(', expected: identifier"),
        ("a in (-x)", r'values\[0\]\[a\]: Invalid value: "-x"'),
        ("a in (b,-x)", r'values\[0\]\[a\]: Invalid value: "-x"'),
        ("a=-x", r'values\[0\]\[a\]: Invalid value: "-x": a valid label'),
        ("a<", r'values\[0\]\[a\]: Invalid value: "": for'),
        ("!-a", 'key: Invalid value: "-a": name part'),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ],
)
def test_a_bad_label_selector_says_what_was_found(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        labels.parse(text)


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused_cleanly(text: str) -> None:
    try:
        selector = labels.parse(text)
    except ValueError:
        return
    assert labels.parse(str(selector)) == selector


def test_the_object_form_selects_the_same() -> None:
    selector = labels.from_object(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "gone", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ({"operator": "In", "values": ["b", "a"]}, "k in (a,b)"),
        ({"operator": "NotIn", "values": ["b", "a"]}, "k notin (a,b)"),
        ({"operator": "Exists"}, "k"),
        ({"operator": "DoesNotExist", "values": None}, "!k"),
        ({"operator": "Gt", "values": ["1"]}, "k>1"),
        ({"operator": "Lt", "values": ["1"]}, "k<1"),
    ],
)
def test_operators_of_the_object_form(expression: dict[str, Any], text: str) -> None:
    """Each prints and parses as the query form of the same; its key may sort before others."""
    selector = labels.from_object(
        {"matchExpressions": [{"key": "k", **expression}], "matchLabels": {"a": "b", "z": "y"}}
    )
    assert str(selector) == f"a=b,{text},z=y"
    assert labels.parse(str(selector)) == selector


@pytest.mark.parametrize("text", ["a==b", "a!=b", "a in (b,c)", "a notin (b)", "!a", "a>1", "a<1"])
def test_a_selector_prints_as_it_was_written(text: str) -> None:
    assert str(labels.parse(text)) == text
    (requirement,) = labels.parse(text).requirements
    assert requirement.key == "a"


def test_requirements_are_sorted_by_key() -> None:
    assert str(labels.parse("b=1,a=2")) == "a=2,b=1"
    assert str(labels.from_labels({"b": "1", "a": "2"})) == "a=2,b=1"


@pytest.mark.parametrize("operator", [None, "Odd"])
def test_an_operator_that_the_object_form_does_not_know(operator: str | None) -> None:
    with pytest.raises(ValueError, match=f'"{operator}" is not a valid label selector operator'):
        labels.from_object({"matchExpressions": [{"key": "k", "operator": operator}]})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [(labels.EVERYTHING, True), (labels.NOTHING, False), (labels.parse("a"), False),
     (labels.from_object(None), False), (labels.from_object({"matchLabels": None}), True)],
)  # fmt: skip
def test_which_selector_selects_everything(selector: labels.Selector, expected: bool) -> None:
    assert selector.is_everything is expected


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not labels.from_object(None).matches(LABELS)
    assert labels.from_object({}).matches({})


FIELDS = {"metadata.name": "a", "spec.nodeName": "n1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metadata.name=a", True),
        ("metadata.name==a,spec.nodeName!=n2", True),
        ("spec.nodeName!=n1", False),
        ("status.phase=", True),
        (r"metadata.name=a\,b", False),
        ("", True),
    ],
)
def test_field_selectors_compare_an_absent_field_as_empty(text: str, expected: bool) -> None:
    assert fields.parse(text).matches(FIELDS) is expected


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        (r"a=x\,y,b!=\\\=", [("a", "x,y", True), ("b", "\\=", False)]),
        ("a==x=y", [("a", "x=y", True)]),
        (",a=,", [("a", "", True)]),
        ("a!b!=c", [("a!b", "c", False)]),
        ("a=b!=c", [("a", "b!=c", True)]),
    ],
)
def test_parts_of_a_field_selector(text: str, requirements: list[tuple[str, str, bool]]) -> None:
    result = [(r.field, r.value, r.is_equal) for r in fields.parse(text).requirements]
    assert result == requirements


@pytest.mark.parametrize("text", ["a=\\", "a=\\b", "a!=x\\,y\\"])
def test_a_bad_escape_in_a_field_selector(text: str) -> None:
    with pytest.raises(ValueError, match="invalid escape sequence"):
        fields.parse(text)


def test_the_value_that_a_field_must_have() -> None:
    selector = fields.parse("a!=1,b=2,a=3,a=4")
    assert [selector.required_value(field) for field in ("a", "b", "c")] == ["3", "2", None]
    assert not selector.is_everything
    assert str(selector) == "a!=1,b=2,a=3,a=4"
    assert fields.parse("").is_everything
    assert fields.EVERYTHING.is_everything
    assert fields.parse("a!=1").required_value("a") is None


def test_a_field_selector_without_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="can't understand"):
        fields.parse("metadata.name")


@pytest.mark.parametrize("operator", ["gt", "lt", "in", "notin"])
def test_a_requirement_without_values_is_no_error(operator: str) -> None:
    """Validation reports it, and what is checked beside it matches by it too."""
    assert labels.Requirement("a", operator).matches({"a": "1"}) == (operator == "notin")
