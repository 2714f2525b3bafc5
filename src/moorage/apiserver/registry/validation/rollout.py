"""Rolling update validation: amounts of pods as a number or a percentage.

Source: apps validation of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import NOT_NEGATIVE

_PERCENT = re.compile(r"[0-9]+%")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_MALFORMED = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)


def amount_errors(amount: int | str, path: str) -> list[FieldError]:
    """Return the errors of an amount: a number that is not negative, or a percentage."""
    if isinstance(amount, int):
        return [] if amount >= 0 else [FieldError.invalid(path, amount, NOT_NEGATIVE)]
    return [] if _PERCENT.fullmatch(amount) else [FieldError.invalid(path, amount, _MALFORMED)]


def above_all_errors(amount: int | str, path: str) -> list[FieldError]:
    """Return the error of a percentage above 100."""
    if isinstance(amount, int) or not _PERCENT.fullmatch(amount) or number_of(amount) <= 100:
        return []
    return [FieldError.invalid(path, amount, "must not be greater than 100%")]


def number_of(amount: int | str) -> int:
    """Return an amount without its percent sign; 0 for text that is no number."""
    if isinstance(amount, int):
        return amount
    if _PERCENT.fullmatch(amount):
        # Any percentage of ten digits is above 100.
        return int(amount[:-1].lstrip("0")[:10] or "0")
    return int(amount) if _NUMBER.fullmatch(amount) else 0
