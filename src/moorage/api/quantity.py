"""Kubernetes quantities: `250m`, `1.5Gi`, `1e3`.

A quantity is stored as an exact integer of billionths, the finest step of the API; finer amounts
round away from zero ("if you asked for something, you get something"). Text output is canonical: no
fraction digits, largest fitting suffix, the input's suffix family kept. Source: apimachinery
`resource.Quantity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from fractions import Fraction

import msgspec

from moorage.api.remembered import remembered

NANO = 10**9
_MAX_NANO = (2**63 - 1) * NANO

QuantityText = str | int | float

FORMAT_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
)
_DECIMAL_EXPONENT = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENT.items()}
_BINARY_POWER = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY_POWER.items()}


class Family(Enum):
    """Suffix family that a quantity was written in."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


class Quantity(msgspec.Struct, frozen=True, order=False):
    """An exact amount, stored in billionths (`nano`); equality and order ignore the family."""

    nano: int
    family: Family = Family.DECIMAL

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __add__(self, other: Quantity) -> Quantity:
        family = other.family if self.nano == 0 else self.family
        return Quantity(self.nano + other.nano, family)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, self.family)

    def __bool__(self) -> bool:
        return self.nano != 0

    @property
    def value(self) -> int:
        """Whole units, rounded up."""
        return -(-self.nano // NANO)

    @property
    def milli(self) -> int:
        """Thousandths, rounded up; the unit of CPU arithmetic."""
        return -(-self.nano // 10**6)

    @property
    def is_whole(self) -> bool:
        return self.nano % NANO == 0

    def __str__(self) -> str:
        if self.nano == 0:
            return "0"
        if self.family is Family.BINARY and self._is_shown_binary():
            return _binary_text(self.nano // NANO)
        return _decimal_text(self.nano, exponent_form=self.family is Family.EXPONENT)

    def _is_shown_binary(self) -> bool:
        # Small or fractional amounts lose precision in binary form, so the API shows them decimal.
        return self.is_whole and abs(self.nano) >= 1024 * NANO


def _binary_text(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < 6:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}" if power else str(units)


def _decimal_text(nano: int, *, exponent_form: bool) -> str:
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa //= 1000
        exponent += 3
    if exponent_form:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"


@remembered(4096)
def parse(text: QuantityText) -> Quantity:
    """Parse a JSON string or number as a quantity.

    Raises ValueError, worded as upstream, when the text is not a quantity.
    """
    match = _TEXT.fullmatch(str(text).strip()) if not isinstance(text, bool) else None
    if match is None:
        raise ValueError(FORMAT_MESSAGE)
    suffix = match["suffix"] or ""
    amount = Fraction(match["number"])
    if suffix in _BINARY_POWER:
        amount *= 1024 ** _BINARY_POWER[suffix]
        family = Family.BINARY
    elif suffix in _DECIMAL_EXPONENT:
        amount *= Fraction(10) ** _DECIMAL_EXPONENT[suffix]
        family = Family.DECIMAL
    else:
        amount *= Fraction(10) ** bounded_exponent(suffix[1:])
        family = Family.EXPONENT
    scaled = amount * NANO
    nano = min(-(-scaled.numerator // scaled.denominator), _MAX_NANO)
    return Quantity(-nano if match["sign"] == "-" else nano, family)


def bounded_exponent(digits: str) -> int:
    """Return the exponent, clamped where amounts are zero or the largest: bounds `1e999999999`."""
    return max(-64, min(64, int(digits[:12])))


@remembered(4096)
def canonical(text: QuantityText) -> str:
    """Return the canonical text that the API stores: `0.5` → `500m`, `1024Mi` → `1Gi`."""
    return str(parse(text))


def add_resources(*lists: Mapping[str, str]) -> dict[str, Quantity]:
    """Return the per-resource sum of ResourceLists (name → quantity text)."""
    total: dict[str, Quantity] = {}
    for resources in lists:
        for name, text in resources.items():
            amount = parse(text)
            total[name] = total[name] + amount if name in total else amount
    return total


def max_resources(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    """Return the per-resource maximum."""
    peak: dict[str, Quantity] = {}
    for resources in lists:
        for name, amount in resources.items():
            if name not in peak or peak[name] < amount:
                peak[name] = amount
    return peak


def to_texts(resources: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}
