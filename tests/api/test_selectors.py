from __future__ import annotations

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


def test_a_field_selector_without_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="can't understand"):
        fields.parse("metadata.name")


@pytest.mark.parametrize("operator", ["gt", "lt", "in", "notin"])
def test_a_requirement_without_values_is_no_error(operator: str) -> None:
    """Validation reports it, and what is checked beside it matches by it too."""
    assert labels.Requirement("a", operator).matches({"a": "1"}) == (operator == "notin")
