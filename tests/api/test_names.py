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
        (names.path_segment_errors, ["a:b@c X", "A"], [".", "..", "a/b", "a%b"]),
        (
            names.qualified_name_errors,
            ["a", "example.com/a_b.c", "A", "a" * 63],
            ["", "/a", "a/", "a/b/c", "Example.com/a", LONG, "-a"],
        ),
        (names.label_value_errors, ["", "a", "A_b.c-1", "a" * 63], ["-a", "a b", LONG]),
        (
            names.search_domain_errors,
            [".", "a", "a.", "_a.b_c", "a" * 253, "a" * 253 + "."],
            ["", "..", "a..", "A", "-a", "a.-b", "a" * 254, "a" * 254 + "."],
        ),
        (
            names.config_key_errors,
            ["a.b_c-D", ".a", "a" * 253],
            ["", "a b", ".", "..", "..a", "a/b", "a" * 254],
        ),
        (
            names.port_name_errors,
            ["http", "a-1", "a" * 15],
            ["", "1", "-a", "a-", "a--b", "UPPER", "a" * 16],
        ),
        (names.env_name_errors, ["A", "a b", "x.y", "~"], ["", "A=B", "\t", "\x7f", "é"]),
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


_LABEL = "a lowercase RFC 1123 label must"
_SUBDOMAIN = "a lowercase RFC 1123 subdomain must"
_QUALIFIED = "must consist of alphanumeric characters, '-', '_' or '.', and must"
_TOO_LONG = "must be no more than {} characters"


@pytest.mark.parametrize(
    ("check", "value", "complaints"),
    [
        (names.dns_label_errors, "A" * 64, [_TOO_LONG.format(63), _LABEL]),
        (names.dns_subdomain_errors, "A" * 254, [_TOO_LONG.format(253), _SUBDOMAIN]),
        (names.search_domain_errors, "", [_SUBDOMAIN]),
        (names.search_domain_errors, "..", [_SUBDOMAIN]),
        (names.search_domain_errors, "A" * 254, [_TOO_LONG.format(253), _SUBDOMAIN]),
        (names.path_segment_errors, ".", ["may not be '.'"]),
        (names.path_segment_errors, "..", ["may not be '..'"]),
        (names.path_segment_errors, "%/", ["may not contain '/'", "may not contain '%'"]),
        (names.qualified_name_errors, "a/b/c", [f"a qualified name {_QUALIFIED}"]),
        (names.qualified_name_errors, "/a", ["prefix part must be non-empty"]),
        (names.qualified_name_errors, "A/a", [f"prefix part {_SUBDOMAIN}"]),
        (names.qualified_name_errors, "a/",
         ["name part must be non-empty", f"name part {_QUALIFIED}"]),
        (names.qualified_name_errors, "a/-" + "b" * 63,
         ["name part must be no more than 63 bytes", f"name part {_QUALIFIED}"]),
        (names.label_value_errors, "-" * 64,
         ["must be no more than 63 bytes", "a valid label must be an empty string"]),
        (names.config_key_errors, ".", ["must not be '.'"]),
        (names.config_key_errors, "..", ["must not be '..'"]),
        (names.config_key_errors, "..a", ["must not start with '..'"]),
        (names.config_key_errors, " " * 254, [_TOO_LONG.format(253), "a valid config key must"]),
        (names.port_name_errors, "-" * 16, [
            _TOO_LONG.format(15), "must contain at least one letter (a-z)",
            "must not contain consecutive hyphens", "must not begin or end with a hyphen",
        ]),
        (names.port_name_errors, "A", ["must contain only alpha-numeric characters (a-z, 0-9)",
                                       "must contain at least one letter (a-z)"]),
        (names.env_name_errors, "", ["environment variable name must not be empty"]),
        (names.env_name_errors, "=", ["a valid environment variable name must consist only of"]),
    ],
)  # fmt: skip
def test_complaints_in_their_order(
    check: Callable[[str], list[str]], value: str, complaints: list[str]
) -> None:
    errors = check(value)
    assert len(errors) == len(complaints), errors
    assert all(text.startswith(start) for text, start in zip(errors, complaints, strict=True)), (
        errors
    )


def test_the_size_of_annotations_is_of_their_bytes() -> None:
    assert names.annotations_size({}) == 0
    assert names.annotations_size({"é": "é", "ab": "cde"}) == 9


@pytest.mark.parametrize("length", [1, 5, 8])
def test_random_suffixes_have_a_length_and_no_vowels(length: int) -> None:
    suffix = names.random_suffix(length)
    assert len(suffix) == length
    assert not set(suffix) & set("aeiouy013")
