"""Numbers in text, as Go reads them."""

from __future__ import annotations

import pytest

from moorage.api.numbers import parse_int, parse_uint


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-5", -5), ("+7", 7), ("007", 7), ("0" * 5000 + "3", 3),
     (str(2**63 - 1), 2**63 - 1), (str(-(2**63)), -(2**63))],
)  # fmt: skip
def test_signed(text: str, number: int) -> None:
    assert parse_int(text) == number


def test_unsigned() -> None:
    assert parse_uint(str(2**64 - 1)) == 2**64 - 1


@pytest.mark.parametrize(
    "text", ["", "-", "1_0", " 1", "1 ", "\u0661", "\u00b2", "0x1", "1.0", "a"]
)
def test_invalid_number_is_rejected(text: str) -> None:
    for parse, name in ((parse_int, "ParseInt"), (parse_uint, "ParseUint")):
        with pytest.raises(ValueError, match="invalid syntax") as caught:
            parse(text)
        assert str(caught.value) == f'strconv.{name}: parsing "{text}": invalid syntax'


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "9" * 5000, "-" + "9" * 5000])
def test_numbers_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match="value out of range"):
        parse_int(text)


@pytest.mark.parametrize("text", ["-1", "+1"])
def test_an_unsigned_number_has_no_sign(text: str) -> None:
    with pytest.raises(ValueError, match="invalid syntax"):
        parse_uint(text)


def test_an_unsigned_number_out_of_range() -> None:
    with pytest.raises(ValueError, match="value out of range"):
        parse_uint(str(2**64))
