from __future__ import annotations

from collections.abc import Callable

import pytest

from moorage.api import names

LONG = "a" * 64


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.dns_label_errors, ["a", "a-1", "1a", "a" * 63], ["", "A", "a_b", "a.b", "-a", LONG]),
        (
            names.dns_subdomain_errors,
            ["a", "a.b-c.d", "1.2", "a" * 253],
            ["", "A.b", ".a", "a..b", "a_b", "a" * 254],
        ),
        (names.dns_1035_label_errors, ["a", "a1"], ["1a", "", "a.b"]),
        (names.path_segment_errors, ["a:b@c X", "A"], [".", "..", "a/b", "a%b"]),
        (
            names.qualified_name_errors,
            ["a", "example.com/a_b.c", "A"],
            ["", "/a", "a/", "a/b/c", "Example.com/a", LONG, "-a"],
        ),
        (names.label_value_errors, ["", "a", "A_b.c-1"], ["-a", "a b", LONG]),
        (names.config_key_errors, ["a.b_c-D"], ["", "a b", "..", "..a", "a/b"]),
        (names.port_name_errors, ["http", "a-1"], ["1", "-a", "a--b", "UPPER", "a" * 16]),
        (names.env_name_errors, ["A", "a b", "é"[:0] or "x.y"], ["", "A=B", "\t"]),
    ],
)
def test_names(check: Callable[[str], list[str]], good: list[str], bad: list[str]) -> None:
    assert {name: check(name) for name in good if check(name)} == {}
    assert [name for name in bad if not check(name)] == []


def test_a_dotted_label_gets_the_short_hint_alone() -> None:
    assert names.dns_label_errors("foo.bar") == ["must not contain dots"]


def test_length_is_complained_of_before_form() -> None:
    complaints = names.dns_label_errors("A" * 64)
    assert complaints[0] == "must be no more than 63 characters"
    assert len(complaints) == 2


def test_generated_names_keep_the_base_and_stay_short() -> None:
    made = names.generate_name("x" * 80)
    assert len(made) == 63
    assert made.startswith("x" * 58)
    assert names.generate_name("web-") != names.generate_name("web-")
