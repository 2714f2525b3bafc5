from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api import quantity
from moorage.api.quantity import Quantity, parse

CANONICAL = {
    "0.5": "500m",
    "1024Mi": "1Gi",
    "1.5Gi": "1536Mi",
    "0.1": "100m",
    "100m": "100m",
    "1000": "1k",
    "1200": "1200",
    "1023": "1023",
    "1Ki": "1Ki",
    "0.5Ki": "512",
    "1e3": "1e3",
    "12E": "9223372036854775807",
    "-1": "-1",
    ".5": "500m",
    "5.": "5",
    "+3": "3",
    "0": "0",
    "0Mi": "0",
    "1n": "1n",
    "0.0000000001": "1n",
    "1e999999999": "9223372036854775807",
    " 1 ": "1",
    7: "7",
    0.25: "250m",
}


@pytest.mark.parametrize(("written", "stored"), CANONICAL.items())
def test_a_quantity_is_stored_in_its_canonical_spelling(written: object, stored: str) -> None:
    assert quantity.canonical(written) == stored  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "abc", "1.2.3", "1 Gi", "Gi", "1gi", "--1", "1e", "0x10", True]
)
def test_invalid_quantity_is_rejected_with_the_apis_message(text: object) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        quantity.parse(text)  # type: ignore[arg-type]


def test_equal_amounts_are_equal_however_they_are_spelt() -> None:
    assert parse("0.25") == parse("250m")
    assert parse("120Mi") == parse("122880Ki")
    assert hash(parse("1Gi")) == hash(parse("1024Mi"))
    assert parse("1") < parse("1001m")


@pytest.mark.parametrize(
    ("text", "milli", "value"), [("1500m", 1500, 2), ("1n", 1, 1), ("2", 2000, 2)]
)
def test_rounding_to_units_is_upwards(text: str, milli: int, value: int) -> None:
    assert parse(text).milli == milli
    assert parse(text).value == value


@given(st.integers(min_value=0, max_value=10**20), st.sampled_from(list(quantity.Family)))
def test_canonical_text_reads_back_as_the_same_amount(nano: int, family: quantity.Family) -> None:
    text = str(Quantity(nano, family))
    assert parse(text).nano == nano
    assert quantity.canonical(text) == text


@given(st.text(alphabet="0123456789.eEinumkKMGTP+-", max_size=12))
def test_any_text_is_either_refused_or_stable(text: str) -> None:
    try:
        once = quantity.canonical(text)
    except ValueError:
        return
    assert quantity.canonical(once) == once


def test_resource_lists_add_and_peak_by_name() -> None:
    total = quantity.add_resources({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m"})
    assert quantity.to_texts(total) == {"cpu": "1500m", "memory": "1Gi"}
    peak = quantity.max_resources([total, {"cpu": parse("2")}])
    assert quantity.to_texts(peak) == {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("text", "nano"),
    [("1n", 1), ("1u", 10**3), ("1m", 10**6), ("1", 10**9), ("1k", 10**12), ("1M", 10**15),
     ("1G", 10**18), ("1T", 10**21), ("1P", 10**24), ("1E", 10**27), ("1Ki", 2**10 * 10**9),
     ("1Mi", 2**20 * 10**9), ("1Gi", 2**30 * 10**9), ("1Ti", 2**40 * 10**9),
     ("1Pi", 2**50 * 10**9), ("1Ei", 2**60 * 10**9), ("1e0", 10**9), ("1E3", 10**12),
     ("1e-9", 1), ("1e-10", 1), ("2e+1", 2 * 10**10), ("-1.5", -1_500_000_000)],
)  # fmt: skip
def test_suffixes(text: str, nano: int) -> None:
    amount = parse(text)
    assert amount.nano == nano
    assert str(amount) == {"1E3": "1e3", "1e0": "1", "1e-9": "1e-9", "1e-10": "1e-9",
                           "2e+1": "20", "-1.5": "-1500m"}.get(text, text)  # fmt: skip


@pytest.mark.parametrize(
    ("digits", "exponent"),
    [("64", 64), ("65", 64), ("-64", -64), ("-65", -64), ("9" * 50, 64), ("3", 3)],
)
def test_exponents_are_cut_where_they_change_nothing(digits: str, exponent: int) -> None:
    assert quantity.bounded_exponent(digits) == exponent


def test_sums_keep_the_family_of_what_is_not_zero() -> None:
    assert str(parse("0") + parse("1Ki")) == "1Ki"
    assert str(parse("1Ki") + parse("0")) == "1Ki"
    assert str(parse("2Ki") + parse("1k")) == "3048"
    assert str(parse("3Ki") - parse("1Ki")) == "2Ki"
    assert str(parse("1") - parse("1500m")) == "-500m"
    assert not parse("0")
    assert parse("1n")
    assert parse("1") <= parse("1") <= parse("2")
    assert not parse("2") <= parse("1")
    assert not parse("1") < parse("1")
    assert parse("1") != "1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1023", "1023"), ("1024", "1024"), ("1023Ki", "1023Ki"), ("0.5Ki", "512"),
     ("1.0001Ki", "1024102400u"), ("-2Ki", "-2Ki"), ("-0.5Ki", "-512"), ("1048576Ki", "1Gi"),
     ("7Ei", "7Ei"), ("1025Mi", "1025Mi"), ("2000E", "9223372036854775807")],
)  # fmt: skip
def test_binary_amounts_are_shown_so_where_they_are_exact(text: str, shown: str) -> None:
    assert quantity.canonical(text) == shown


@pytest.mark.parametrize(("text", "milli", "value", "is_whole"), [
    ("-1500m", -1500, -1, False), ("-2", -2000, -2, True), ("1001u", 2, 1, False),
    ("0", 0, 0, True),
])  # fmt: skip
def test_negative_amounts_are_rounded_up_too(
    text: str, milli: int, value: int, is_whole: bool
) -> None:
    amount = parse(text)
    assert (amount.milli, amount.value, amount.is_whole) == (milli, value, is_whole)
